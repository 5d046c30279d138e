import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { afterEach, test } from "node:test";
import { latchedFetch } from "httplatch";
import { store } from "../keys.js";

const { fetch: browserFetch, setTimeout: nodeTimeout } = globalThis;
const types = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#";

afterEach(() => {
	globalThis.fetch = browserFetch;
	for (const name in store) delete store[name];
});

// answered has the n-th fetch return or throw the n-th of answers, the last of them from then on.
// Pauses take no time, and are noted.
function answered(t, ...answers) {
	const sent = [];
	sent.pauses = [];
	globalThis.fetch = async (request) => {
		sent.push(request);
		const answer = answers[Math.min(sent.length, answers.length) - 1];
		if (request.signal.aborted) throw request.signal.reason;
		if (answer instanceof Error) throw answer;
		return typeof answer == "function" ? answer(request) : answer.clone();
	};
	t.mock.method(globalThis, "setTimeout", (f, pause, ...more) => {
		if (!(pause % 1)) return nodeTimeout(f, pause, ...more); // of node's fetch
		sent.pauses.push(pause);
		setImmediate(f);
	});
	return sent;
}

const keyOf = (request) => request.headers.get("Idempotency-Key");
const keysOf = (sent) => new Set(sent.map(keyOf));
const order = (body = "tea", more) => latchedFetch("https://shop.example/orders", { method: "POST", body, ...more });
const lost = new TypeError("the connection is lost");
const created = () => new Response("order 1", { status: 201 });
const problem = (kind, status = 409, headers) =>
	new Response(JSON.stringify({ type: types + kind }), { status, headers: { "Content-Type": "application/problem+json", ...headers } });

// documented are the problems in the first table of docs/problems.md.
function documented() {
	const page = readFileSync(new URL("../../docs/problems.md", import.meta.url), "utf8");
	const rows = [...page.matchAll(/^\| \[`([a-z-]+)`\]\(#[a-z-]+\) \| ([0-9]+)[^|]*\|[^|]*\| (yes)?/gm)];
	assert.ok(rows.length > 15);
	return rows.map(([, kind, status, yes]) => ({ kind, status: +status, again: Boolean(yes) }));
}

test("the table of refusals is that of docs/problems.md and of package client", async (t) => {
	const more = [
		["held", 423, false],
		["held", 429, false],
		["held", 503, false], // the kind counts, not the status
		["cooling-down", 409, false],
		["rolled-back", 500, false],
		["of-a-later-version", 409, false],
		["of-a-later-version", 503, true],
	].map(([kind, status, again]) => ({ kind, status, again }));
	for (const { kind, status, again } of [...documented(), ...more]) {
		for (const [how, first] of Object.entries({
			type: problem(kind, status),
			header: new Response("\x1f\x8b", { status, headers: { "Latch-Problem": kind, "Content-Type": "text/html" } }),
			"a header that is not known": problem(kind, status, { "Latch-Problem": "refused" }),
		})) {
			const sent = answered(t, first, created());
			const answer = await order(kind + status + how);
			assert.equal(sent.length, again ? 2 : 1, `${status} ${kind} by ${how}`);
			assert.equal(answer.status, again ? 201 : status);
			assert.equal(keysOf(sent).size, 1);
		}
	}
});

test("statuses without a kind, and the words of other servers", async (t) => {
	const retried = [408, 425, 429, 502, 503, 504];
	for (let status = 400; status < 600; status++) {
		const sent = answered(t, new Response("", { status }), created());
		await order("status" + status);
		assert.equal(sent.length, retried.includes(status) ? 2 : 1, status);
	}
	const json = { "Content-Type": "application/json" };
	for (const [status, headers, body, times] of [
		[409, { "Stripe-Should-Retry": "true" }, "", 2],
		[500, { "Stripe-Should-Retry": "true" }, "", 2],
		[503, { "Stripe-Should-Retry": "false" }, "", 1],
		[200, { "Stripe-Should-Retry": "true" }, "", 1],
		[409, { "Stripe-Should-Retry": "true", "Latch-Problem": "outcome-unknown" }, "", 1],
		[409, json, '{"code":"idempotency_in_flight"}', 2],
		[409, json, '{"error":{"code": "idempotency_key_in_use"}}', 2],
		[409, json, '{"code":"sold_out"}', 1],
		[409, { "Content-Type": "text/html" }, '{"code":"idempotency_in_flight"}', 1],
		[422, json, `{"text":"${types}in-progress"}`, 1], // it only speaks of a refusal
	]) {
		const sent = answered(t, new Response(body, { status, headers }), created());
		await order("says" + JSON.stringify([status, headers, body]));
		assert.equal(sent.length, times, status + body + JSON.stringify(headers));
	}
});

test("pauses grow, begin at another time for each client, and come after Retry-After", async (t) => {
	const sent = answered(t, lost, problem("unavailable", 503, { "Retry-After": "3" }), lost, created());
	await order();
	assert.equal(sent.length, 4);
	for (const [n, least] of [500, 1000 + 3000, 2000].entries()) {
		assert.ok(sent.pauses[n] >= least && sent.pauses[n] < least + 500 * 2 ** n, `${n}: ${sent.pauses[n]}`);
	}
	for (const after of ["-3", "Wed, 21 Oct 2015 07:28:00 GMT"]) {
		const { pauses } = answered(t, problem("unavailable", 503, { "Retry-After": after }), created());
		await order(after);
		assert.ok(pauses[0] >= 500 && pauses[0] < 1000, `${after}: ${pauses[0]}`);
	}
	const forever = answered(t, problem("unavailable", 503, { "Retry-After": "1000000000" }));
	assert.equal((await order()).status, 503);
	assert.equal(forever.length, 1);
});

test("one key for one payload and place until there is a final answer", async (t) => {
	const give = { signal: AbortSignal.abort() };
	const key = async (body, more) => {
		const sent = answered(t, created());
		await order(body, more).catch(() => {});
		return keyOf(sent[0]);
	};
	const first = await key("tea", give); // no answer
	assert.ok(first);
	assert.notEqual(await key("coffee"), first);
	assert.notEqual(await key("tea", { place: "gifts" }), first);
	assert.notEqual(await key("tea", { method: "PUT" }), first);
	assert.equal(await key("tea", give), first);
	assert.equal(await key("tea"), first, "it was answered");
	const next = await key("tea");
	assert.notEqual(next, first, "so the next one is another order");
	assert.deepEqual({ ...store }, {});

	const own = { headers: { "Idempotency-Key": "own" } };
	assert.equal(await key("tea", own), "own");
	assert.deepEqual({ ...store }, {});
});

test("a final answer leaves what the page itself has stored", async (t) => {
	answered(t, created());
	store.checkout = "own"; // a key of its own, or a number of the same text
	await order("tea", { headers: { "Idempotency-Key": "own" } });
	assert.equal(store.checkout, "own");
});

test("a page whose sessionStorage is null", async () => {
	Object.defineProperty(globalThis, "sessionStorage", { value: null, configurable: true });
	const keys = await import("../keys.js?null");
	delete globalThis.sessionStorage;
	assert.equal(keys.store.latch1, undefined);
	keys.put("latch1", "k");
	assert.equal(keys.store.latch1, "k");
});

test("what ends a key", async (t) => {
	const left = async (...answers) => {
		answered(t, ...answers);
		await order("what ends " + Math.random()).catch(() => {});
		return Object.keys(store).filter((name) => delete store[name]).length;
	};
	const status = (status, headers) => new Response("", { status, headers });
	const ended = ["outcome-unknown", "result-not-replayable", "key-reused", "key-missing", "key-invalid", "key-not-supported"];
	for (const { kind, status } of documented()) {
		assert.equal(await left(problem(kind, status, { "Retry-After": "3600" })), ended.includes(kind) ? 0 : 1, kind);
	}
	for (const code of [200, 201, 204, 400, 404, 409, 422]) assert.equal(await left(status(code === 204 ? 200 : code)), 0, code);
	for (const code of [401, 403, 419, 500, 501]) assert.equal(await left(status(code)), 1, code);
	// A proxy that refuses what comes after a lost answer does not know what became of the first attempt.
	assert.equal(await left(lost, status(404)), 1);
	assert.equal(await left(status(503), status(413)), 1);
	assert.equal(await left(lost, status(422, { "Idempotent-Replayed": "true" })), 0);
	assert.equal(await left(lost, status(201)), 0);
});

test("a refusal after a reload says nothing about the attempt before it", async (t) => {
	answered(t, created());
	await order("tea", { signal: AbortSignal.abort() }).catch(() => {});
	const [name] = Object.keys(store);
	const sent = answered(t, new Response("", { status: 404 }));
	await order("tea");
	assert.equal(store[name], keyOf(sent[0]));
});

test("a double click is one request with two answers", async (t) => {
	let open;
	const opened = new Promise((resolve) => (open = resolve));
	const sent = answered(t, () => opened.then(created));
	const all = [order(), order(), order("coffee"), order("tea", { headers: { "X-User-ID": "43" } })];
	setImmediate(open);
	for (const answer of await Promise.all(all)) assert.equal(await answer.text(), "order 1");
	assert.equal(sent.length, 3, "neither another payload nor another user gets the answer");
	await order();
	assert.equal(sent.length, 4);
});

test("a click that is given up does not end the other", async (t) => {
	for (const which of [0, 1]) {
		const sent = answered(t, (request) => new Promise((resolve, reject) => {
			request.signal.addEventListener("abort", () => reject(request.signal.reason));
			setImmediate(() => setImmediate(resolve, created()));
		}));
		const given = [new AbortController(), new AbortController()];
		const clicks = given.map(({ signal }) => order("tea", { signal }));
		const ends = Promise.allSettled(clicks);
		await new Promise(setImmediate);
		given[which].abort();
		const statuses = (await ends).map((end) => end.value?.status ?? end.reason.name);
		assert.deepEqual(statuses, which == 0 ? ["AbortError", 201] : [201, "AbortError"]);
		assert.equal(keysOf(sent).size, 1);
	}
});

test("forms, files and bytes are compared by their content", async (t) => {
	const form = (file) => {
		const data = new FormData();
		data.set("sku", "tea");
		data.set("note", new File([file], "note.txt"));
		return data;
	};
	const sent = answered(t, problem("held")); // keeps the key
	const image = (byte) => () => new Uint8Array([0xff, 0xd8, byte]);
	for (const body of [() => form("a"), () => form("b"), image(0x80), image(0x81), () => new URLSearchParams("sku=tea"), () => new TextEncoder().encode("tea"), () => new Blob(["tea!"])]) {
		const from = sent.length;
		await order(body());
		await order(body());
		assert.equal(keysOf(sent.slice(from)).size, 1);
	}
	assert.equal(keysOf(sent).size, 7);
});

test("safe methods are fetch", async (t) => {
	for (const method of ["GET", "HEAD", "OPTIONS", "QUERY"]) {
		const sent = answered(t, new Response("", { status: 503 }));
		await latchedFetch("https://shop.example/orders", { method });
		assert.deepEqual([sent.length, keyOf(sent[0])], [1, null], method);
	}
});

// The server runs each key once. Its answer to the first attempt breaks off after n bytes.
test("an answer that is cut at each byte: one effect, one answer", async (t) => {
	const text = "HTTP/1.1 201 Created\r\nContent-Length: 7\r\nConnection: close\r\n\r\norder 1";
	const effects = new Map();
	const keys = new Map();
	const server = createServer({ keepAlive: false });
	server.on("request", (request, response) => {
		const [, cut, guarded] = request.url.split("/");
		request.resume().on("end", () => {
			const key = request.headers["idempotency-key"];
			const seen = keys.get(key) || keys.get(cut + guarded);
			if (!seen || guarded == "no") effects.set(request.url, (effects.get(request.url) || 0) + 1);
			keys.set(key, true);
			response.socket.end(seen || keys.has(cut + guarded) ? text : text.slice(0, +cut));
			keys.set(cut + guarded, true);
		});
	});
	await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
	t.after(() => server.close());
	const url = `http://127.0.0.1:${server.address().port}/`;
	await Promise.all([...text].map(async (_, cut) => {
		const answer = await latchedFetch(`${url}${cut}/yes`, { method: "POST", body: "tea" });
		assert.equal(await answer.text(), "order 1");
		assert.equal(effects.get(`/${cut}/yes`), 1, cut);
	}));
	// The twin: the loop that many pages have.
	const twin = `${url}0/no`;
	while (!(await fetch(twin, { method: "POST", body: "tea" }).catch(() => null)));
	assert.equal(effects.get("/0/no"), 2);
});
