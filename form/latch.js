// One submission for each <form data-latch>, however often it is sent. docs/forms.md
// says what to write, and what users see. latch.min.js is made from this file
// (make form-script), and is what Script serves.
//
// All listeners are on window: forms that htmx or Turbo add later need nothing, and no
// handler of the page comes before the first of them or after the last.

const header = "Idempotency-Key";
const selector = "form[data-latch]";

// Keys by form and content, until an answer is final; and in "latch" what was sent last.
// Where the browser forbids sessionStorage, they are kept as long as the page.
let store = {};
try {
	store = sessionStorage;
} catch {}

const buttons = new Map(); // of the forms under way
const taken = new WeakSet(); // fields whose first value was used

function put(name, value) {
	try {
		store[name] = value;
	} catch {
		store = { ...store, [name]: value }; // it is full
	}
}

// now is on the clock of performance.timeOrigin, which is that of the next page too.
const now = () => performance.timeOrigin + performance.now();

// crypto.randomUUID exists on https only.
const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

const fieldOf = (form) => form.querySelector("[name=once]");

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
	// Attributes, because form.action is the field of that name if there is one.
	const text = JSON.stringify(
		[new URL(form.getAttribute("action") || "", document.baseURI), form.getAttribute("method"), form.getAttribute("id"), ...content],
		(_, v) => (v?.size >= 0 ? [v.name, v.size, v.size && v.lastModified] : v), // files
	);
	// FNV-1a: fields may be secret, so they are not kept. Two contents with one hash would
	// share a key, and the server would refuse the second one.
	let hash = 0;
	for (const c of text) hash = Math.imul(hash ^ c.codePointAt(), 16777619);
	const name = "latch" + hash;
	// The server's key may be under way: the form can be sent before this script is there.
	// It is of one content only.
	const key = store[name] || (!taken.has(field) && field.value) || newKey();
	taken.add(field);
	put(name, key);
	return (field.value = key);
}

// hold stops further submissions. The buttons are not disabled: a disabled button is not
// sent, and loses the focus.
function hold(form) {
	buttons.set(form, [...form.elements].filter((b) => b.type == "submit" && !b.ariaDisabled));
	for (const b of buttons.get(form)) b.ariaDisabled = true;
}

function wake(form) {
	for (const b of buttons.get(form) || []) b.ariaDisabled = null;
	buttons.delete(form);
}

// settle ends what was under way with key, and forgets the key, unless the answer is a problem
// after which the form can be sent again (all kinds but those named here), or no answer of
// the application.
function settle(key, status, text) {
	for (const form of buttons.keys()) if (fieldOf(form)?.value == key) wake(form);
	const problem = /(?:latch-problem" content="|problems\.md#)(outcome|result|key-[^f])?/.exec(text);
	if (problem ? problem[1] : status && status < 500) {
		for (const name in store) if (store[name] == key) delete store[name];
		return true;
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

// lastSent returns the key that was sent last, when, how often in a row, and from where.
const lastSent = () => (store.latch || "").split(" ");

function sending(key) {
	const [previous, , times] = lastSent();
	put("latch", [key, now(), previous == key ? +times + 1 : 1, location.href].join(" "));
}

addEventListener("submit", (e) => {
	if (e.defaultPrevented || !e.target.matches(selector)) return;
	const form = (last = e.target);
	hold(form);
	// No event says that the answer was a download, or went to another window.
	setTimeout(() => wake(form), 10_000);
	if (!window.navigation) sending(fieldOf(form).value);
});

// A script of the page may send the form later, by form.submit(). A form that the stop button, or
// another page, has stopped can be sent again. What another page answers is no answer.
window.navigation?.addEventListener("navigate", (e) => {
	const form = last;
	const key = e.formData?.get("once");
	if (key) {
		sending(key);
		e.signal.onabort = () => wake(form);
	} else if (!e.destination.sameDocument) delete store.latch;
});
addEventListener("pageshow", () => {
	for (const form of buttons.keys()) wake(form);
});

// This page is the answer to what was sent if it was opened at once, or by a page that the
// submission led to. An address that was typed in may follow a lost answer, or one that this
// script has not seen: the key is kept once. A reload sends the form again, if it does
// not show it; the back button does not. A tab without a history has copied the storage
// of the one that has opened it.
const [load] = performance.getEntriesByType("navigation");
const [key, sent, times, from] = lastSent();
const opened = load?.type == "navigate" && history.length > 1 && (document.referrer || performance.timeOrigin - sent < 500 || times > 1);
if (key && (opened || (load?.type == "reload" && from != location.href))) {
	if (settle(key, load.responseStatus || 200, document.head.innerHTML)) delete store.latch;
}

addEventListener("turbo:before-fetch-request", (e) => {
	if (!e.target.matches(selector)) return;
	e.detail.fetchOptions.headers[header] = fieldOf(e.target).value;
	hold(e.target);
});
addEventListener("turbo:submit-end", async (e) => {
	const form = e.detail.formSubmission.formElement;
	const answer = e.detail.fetchResponse;
	if (form.matches(selector)) settle(fieldOf(form)?.value, answer?.statusCode, await answer?.responseText);
});

// htmx 2, and htmx 4, whose events have a ctx.
for (const [prepare, begin, end] of [
	["configRequest", "beforeSend", "afterRequest"],
	["config:request", "before:request", "finally:request"],
]) {
	addEventListener("htmx:" + prepare, (e) => {
		const { ctx, parameters, triggeringEvent } = e.detail;
		const { headers, body, submitter } = ctx?.request || e.detail;
		const form = e.target.closest?.(selector);
		if (!form) return;
		const key = (headers[header] = keyOf(form, triggeringEvent?.submitter || submitter));
		if (body) body.set("once", key);
		else parameters.once = key;
	});
	addEventListener("htmx:" + begin, (e) => {
		const form = e.target.closest?.(selector);
		if (form) hold(form);
	});
	addEventListener("htmx:" + end, (e) => {
		const { ctx, xhr = ctx.response, requestConfig = ctx.request } = e.detail;
		settle(requestConfig.headers[header], xhr?.status, ctx ? ctx.text : xhr.responseText);
	});
}

window.latch = {
	// fetch is the fetch of the browser, with one key for all its attempts: that of init.headers,
	// that of the form which init.body was made from, or a new one. It repeats for a minute.
	async fetch(url, init = {}) {
		const headers = new Headers(init.headers);
		const key = headers.get(header) || init.body?.get?.("once") || newKey();
		headers.set(header, key);
		const end = now() + 60_000;
		for (let wait = 500; ; wait *= 2) {
			let answer, failure, text;
			let pause = wait * (1 + Math.random());
			try {
				answer = await fetch(url, { ...init, headers });
				text = answer.ok ? "" : await answer.clone().text();
				pause = Math.max(pause, 1000 * (+answer.headers.get("Retry-After") || 0));
			} catch (e) {
				failure = e;
			}
			const again = failure ? !init.signal?.aborted : /^50[234]/.test(answer.status) || /problems\.md#in-progress/.test(text);
			if (!again || now() + pause > end) {
				if (failure) throw failure;
				settle(key, answer.status, text);
				return answer;
			}
			await new Promise((resolve) => {
				setTimeout(resolve, pause);
				init.signal?.addEventListener("abort", resolve); // the next attempt fails at once
			});
		}
	},
};
