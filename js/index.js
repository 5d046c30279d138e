import { forget, hash, newKey, put, store } from "./keys.js";
import { header, repeat } from "./repeat.js";

const safe = /^(GET|HEAD|OPTIONS|QUERY|PROPFIND|REPORT|SEARCH)$/;

const flights = new Map(); // requests under way

// bytesOf returns the bytes of a body as characters.
const bytesOf = async (body) => new TextDecoder("latin1").decode(await body.arrayBuffer());

// contentOf returns what makes two requests one intent: the place, the method, the address and the
// payload. The boundary of a form with files is another one each time.
async function contentOf(request, place) {
	const { method, url, headers } = request;
	let payload = request.clone();
	if (/^multipart\/form-data/i.test(headers.get("Content-Type"))) {
		payload = [...(await payload.formData())].map(async ([name, v]) => [name, v.size >= 0 ? [v.name, v.type, await bytesOf(v)] : v]);
		payload = await Promise.all(payload);
	} else payload = await bytesOf(payload);
	return JSON.stringify([place, method, url, payload]);
}

function aborted(signal) {
	return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

export async function latchedFetch(input, { place = "", ...init } = {}) {
	const request = new Request(input, init);
	const { headers, method, signal } = request;
	if (safe.test(method)) return fetch(request);
	const given = headers.get(header);
	const content = await contentOf(request, place);
	const name = "latched" + hash(content);
	// A client with other credentials, or another key of its own, does not get this answer.
	const flight = JSON.stringify([content, ...[...headers].filter(([field]) => field != "content-type")]);
	for (let other; (other = flights.get(flight)); ) {
		try {
			signal.throwIfAborted();
			return (await Promise.race([other.answer, aborted(signal)])).clone();
		} catch (e) {
			if (signal.aborted || !other.signal.aborted) throw e;
		}
	}
	const kept = given || store[name];
	const key = kept || newKey();
	if (!given) put(name, key);
	const answer = repeat(request, key, !kept).then(({ answer, ended }) => {
		if (ended) forget(key);
		return answer;
	});
	flights.set(flight, { answer, signal });
	try {
		return (await answer).clone();
	} finally {
		flights.delete(flight);
	}
}
