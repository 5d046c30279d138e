// A worker that sends a request again by itself, as those do that keep requests for later.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (e) => e.waitUntil(clients.claim()));
addEventListener("fetch", (e) => {
	if (e.request.method != "POST") return;
	const copy = e.request.clone();
	e.respondWith(fetch(e.request).catch(() => fetch(copy)));
});
