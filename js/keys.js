// Keys by a hash of what they are for, until an answer is final. Where the browser forbids
// sessionStorage, and in a worker, they are kept as long as the page.
export let store = {};
try {
	store = sessionStorage || store; // null in an Android WebView, unless its app allows it
} catch {}

export function put(name, value) {
	try {
		store[name] = value;
	} catch {
		store = { ...store, [name]: value }; // it is full
	}
}

// forget leaves the page's other names alone: it may keep a key of its headers there, too.
export function forget(key) {
	for (const name in store) if (/^latch/.test(name) && store[name] == key) delete store[name];
}

// crypto.randomUUID exists on https only.
export const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

// FNV-1a over characters, as in the middleware. Fields may be secret, so they are not kept. Two
// contents with one hash would share a key, and the server would refuse the second one.
export function hash(text) {
	let sum = 0;
	for (const c of text) sum = Math.imul(sum ^ c.codePointAt(), 16777619);
	return sum >>> 0;
}
