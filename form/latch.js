// One submission for each <form data-latch>, however often it is sent. docs/forms.md
// says what to write, and what users see. latch.min.js is made from this file and from those of
// js that it imports (make form-script), and is what Script serves.
//
// All listeners are on window: forms that htmx or Turbo add later need nothing, and no
// handler of the page comes before the first of them or after the last. A page that
// has the script twice runs it once.

import { forget, hash, newKey, put, store } from "../js/keys.js";
import { ends, header, kindIn, repeat } from "../js/repeat.js";

const selector = "form[data-latch]";

const here = () => location.pathname + location.search;
const [load = {}] = performance.getEntriesByType("navigation");

const buttons = new Map(); // of the forms under way

// Attributes, because form.action is the field of that name if there is one. Those of the button come
// first.
const attribute = (form, submitter, name) => submitter?.getAttribute("form" + name) || form.getAttribute(name) || "";
const actionOf = (form, submitter) => new URL(attribute(form, submitter, "action"), document.baseURI);
const fieldOf = (form) => [...form.elements].find((e) => e.name == "once");

// cookieOf names the cookie by which the middleware reports that an answer to key was final.
// Unlike what the browser says of a page, it survives a visit to another site.
const cookieOf = (key) => "latch-" + hash(key);
const setCookie = (cookie) => (document.cookie = cookie + ";path=/");

// keyOf returns the key of what form would send, and puts it into the form's field.
function keyOf(form, submitter) {
	let field = fieldOf(form);
	if (!field) {
		field = document.createElement("input");
		field.type = "hidden";
		field.name = "once";
		form.append(field);
	}
	const content = new FormData(form, submitter);
	for (const name of ("once " + form.dataset.latch).split(" ")) content.delete(name);
	const text = JSON.stringify(
		[actionOf(form, submitter), form.getAttribute("method"), form.getAttribute("id"), ...content],
		(_, v) => (v?.size >= 0 ? [v.name, v.size, v.size && v.lastModified] : v), // files
	);
	const name = "latch" + hash(text);
	recall(store[name]);
	// The server's key may be under way: the form can be sent before this script is there.
	// It is of one content only, also in the copies that Turbo and htmx keep of a page that was left.
	const key = store[name] || (!field.dataset.latch && field.value) || newKey();
	field.dataset.latch = 1;
	put(name, key);
	return (field.value = key);
}

// hold stops further submissions. The buttons are not disabled: a disabled button is not
// sent, and loses the focus.
function hold(form) {
	buttons.set(form, [...form.elements].filter((b) => b.type == "submit" && !b.ariaDisabled && (b.ariaDisabled = true)));
}

function wake(form) {
	for (const b of buttons.get(form) || []) b.ariaDisabled = null;
	buttons.delete(form);
}

// settle ends what was under way with key, and forgets the key if an answer of this kind ends it.
function settle(key, status, kind) {
	for (const form of buttons.keys()) if (fieldOf(form)?.value == key) wake(form);
	if (key && ends(status, kind)) {
		forget(key);
		const cookie = cookieOf(key);
		if (store[cookie] && !window.opener) setCookie(cookie + "=;max-age=0"); // the opener has the key too
		delete store[cookie];
	}
}

// recall settles key if the middleware has reported a final answer to it, and its user has
// seen a page since: in another window, or in this one, which has navigated by type. This page
// counts if the submission or a link has opened it, or if it is not that of the form, whose
// address may be typed in after a redirect to a page that was lost: then the key is
// kept for a minute, and once. The back button shows no answer, and a reload only
// another page. Where there can be no report, the page is enough.
function recall(key = "", type) {
	const cookie = cookieOf(key);
	const [sent, from, how] = (store[cookie] || "").split(" ");
	const other = from != here();
	const ago = performance.timeOrigin - sent;
	const seen = type == "navigate" ? other || document.referrer || ago < 500 || ago > 60_000 : type == "reload" && other;
	if ((seen || how == "elsewhere") && (how == "blind" || document.cookie.includes(cookie + "=1"))) {
		settle(key, load.responseStatus || 200, kindIn(document.head.innerHTML));
	}
}

addEventListener("submit", (e) => {
	const form = e.target;
	if (buttons.has(form)) {
		e.preventDefault();
		e.stopImmediatePropagation();
	} else if (form.matches(selector)) keyOf(form, e.submitter);
}, true);

let last; // the form that the browser was sending last

function sending(key, url, where) {
	const cookie = cookieOf(key);
	let how = "blind";
	try {
		setCookie(cookie + "=0;max-age=86400");
		if (document.cookie.includes(cookie) && url.origin == location.origin) how = where;
	} catch {} // a sandbox
	// On the clock of performance.timeOrigin, which is that of the next page too. The second time
	// counts as long ago.
	put(cookie, [store[cookie] ? 0 : performance.timeOrigin + performance.now(), here(), how].join(" "));
}

addEventListener("submit", (e) => {
	if (e.defaultPrevented || !e.target.matches(selector)) return;
	const form = (last = e.target);
	hold(form);
	// No event says that the answer was a download, or went to another window.
	setTimeout(wake, 10_000, form);
	const where = /^(_b|[^_])/i.test(attribute(form, e.submitter, "target")) ? "elsewhere" : "";
	if (where || !window.navigation) sending(fieldOf(form).value, actionOf(form, e.submitter), where);
});

// A script of the page may send the form later, by form.submit(). A form that the stop button, or
// another page, has stopped can be sent again.
window.navigation?.addEventListener("navigate", (e) => {
	const form = last;
	const key = e.formData?.get("once");
	if (key) {
		sending(key, new URL(e.destination.url));
		e.signal.onabort = () => wake(form);
	}
});
const wakeAll = () => buttons.forEach((_, form) => wake(form));
addEventListener("pageshow", wakeAll);
addEventListener("htmx:beforeHistorySave", wakeAll); // of htmx 2, which keeps the page that is left as it is

for (const name in store) if (/^latch/.test(name)) recall(store[name], load.type);

addEventListener("turbo:before-fetch-request", (e) => {
	if (!e.target.matches(selector)) return;
	e.detail.fetchOptions.headers[header] = fieldOf(e.target).value;
	hold(e.target);
});
addEventListener("turbo:submit-end", async (e) => {
	const form = e.detail.formSubmission.formElement;
	const answer = e.detail.fetchResponse;
	if (form.matches(selector)) settle(fieldOf(form)?.value, answer?.statusCode, kindIn(await answer?.responseText));
});

// htmx 2, and htmx 4, whose events have a ctx. A field that is checked by a request of its own does not send the form.
const formSent = ({ target }) => (target.elements || target.type == "submit") && target.closest(selector);
for (const [prepare, begin, end] of [
	["configRequest", "beforeSend", "afterRequest"],
	["config:request", "before:request", "finally:request"],
]) {
	addEventListener("htmx:" + prepare, (e) => {
		const { ctx, parameters, triggeringEvent } = e.detail;
		const { headers, body, submitter } = ctx?.request || e.detail;
		const form = formSent(e);
		if (!form) return;
		const key = (headers[header] = keyOf(form, triggeringEvent?.submitter || submitter));
		(body || parameters).set("once", key);
	});
	addEventListener("htmx:" + begin, (e) => {
		const form = formSent(e);
		if (form) hold(form);
	});
	addEventListener("htmx:" + end, (e) => {
		const { ctx, xhr = ctx.response, requestConfig = ctx.request } = e.detail;
		settle(requestConfig.headers[header], xhr?.status, kindIn(ctx ? ctx.text : xhr.responseText));
	});
}

window.latch = {
	// fetch is the fetch of the browser, with one key for all its attempts: that of its headers,
	// that of the form which init.body was made from, or a new one. It repeats for a minute.
	async fetch(url, init = {}) {
		const request = new Request(url, init);
		const key = request.headers.get(header) || init.body?.get?.("once") || newKey();
		const { answer, ended } = await repeat(request, key);
		settle(key, ended && 200);
		return answer;
	},
};
