// What follows an answer, by the table of docs/problems.md and the rules of package client.

export const header = "Idempotency-Key";

// The kinds after which a request is sent again, those after which no answer to its key will come,
// and the others. Written by TestGoldenKinds of package middleware.
const kinds = /^(?:(body-unreadable|key-failed|in-progress|first-failed|rolled-back|unconfirmed|unavailable|shutting-down)|(key-missing|key-invalid|key-not-supported|key-reused|outcome-unknown|result-not-replayable)|held|cooling-down|unauthenticated|body-too-large|body-consumed)$/;

const retried = /^(408|425|429|50[234])$/;
// Those that depend on the headers of a request or on its connection: the guard does not keep them.
const ofCaller = /^4(0[13678]|1[125679]|2[135689]|31|99)$/;

// kindIn finds the kind of a refusal in a page, or in JSON.
export const kindIn = (text) => /(?:latch-problem" content="|problems\.md#)([a-z-]+)/.exec(text)?.[1];

function kindOf({ headers, status }, text) {
	const kind = headers.get("Latch-Problem");
	if (kinds.test(kind)) return kind;
	const type = headers.get("Content-Type");
	if (/^application\/problem\+json/i.test(type)) return kindIn(text);
	// The words of the Agentic Commerce Protocol, and of Stripe.
	return status == 409 && /^application\/json/i.test(type) && /"code":\s*"idempotency_(in_flight|key_in_use)"/.test(text) ? "in-progress" : "";
}

// ends reports whether there is no other answer to a key. A refusal after which the request can be
// sent again keeps the key, and so does a failure of the server.
export const ends = (status, kind) => (kind ? kinds.exec(kind)?.[2] : status && status < 500 && !ofCaller.test(status));

// repeats reports whether a request with a key is sent again after this answer.
function repeats({ headers, status }, kind) {
	const found = kinds.exec(kind);
	if (found) return found[1] && (kind != "rolled-back" || status == 503);
	const says = headers.get("Stripe-Should-Retry");
	return says == "true" || (says != "false" && retried.test(status));
}

// repeat sends a request with key until an answer allows no other attempt, or for a minute, and
// returns this answer, and whether it ends the key. It reads an answer to its end, because a part of an
// answer is none. sure says that no attempt was made before: a refusal without a kind, perhaps by
// something in front of the server, says nothing about an earlier attempt, unless the guard says that it
// is the first answer again.
export async function repeat(request, key, sure = true) {
	const { headers, signal } = request;
	headers.set(header, key);
	const end = performance.now() + 60_000;
	for (let wait = 500; ; wait *= 2, sure = false) {
		let answer, failure, kind;
		let pause = wait * (1 + Math.random());
		try {
			answer = await fetch(request.clone());
			kind = kindOf(answer, await answer.clone().text());
			pause += 1000 * Math.max(answer.headers.get("Retry-After"), 0) || 0;
		} catch (e) {
			failure = e;
		}
		const over = failure ? signal.aborted : answer.status < 400 || !repeats(answer, kind);
		if (over || performance.now() + pause > end) {
			if (failure) throw failure;
			const first = sure || kind || answer.status < 400 || answer.headers.get("Idempotent-Replayed");
			// 0 is the status of a redirect that the caller does not have followed.
			return { answer, ended: first && ends(answer.status || 303, kind) };
		}
		await new Promise((resolve) => {
			setTimeout(resolve, pause);
			signal.addEventListener("abort", resolve); // the next attempt fails at once
		});
	}
}
