export interface LatchedInit extends RequestInit {
	/**
	 * Names the part of the page that submits, if two parts can submit the same payload and mean two
	 * submissions. "" unless set. It must be the same after a reload.
	 */
	place?: string;
}

/**
 * Fetch with an Idempotency-Key: the server runs the request once, however often it is sent.
 *
 * Calls with the same place, method, URL and payload have one key until there is a final answer, in
 * this tab and after a reload. While one of them is under way, another call gets its answer. An
 * Idempotency-Key in the headers is used as it is.
 *
 * The request is sent again, with the same key, for up to a minute: after a connection error, also in the
 * middle of the answer, and after the statuses and refusals that allow it. Then the last answer is
 * returned, or the error thrown. init.signal ends it.
 *
 * The promise resolves when the answer has arrived to its end, so it is not for answers that are
 * streamed. GET, HEAD and other safe methods are plain fetch.
 */
export function latchedFetch(input: RequestInfo | URL, init?: LatchedInit): Promise<Response>;
