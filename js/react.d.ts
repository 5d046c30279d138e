import type { LatchedInit } from "./index.js";

export interface Submission {
	/** Whether a submission is under way. */
	pending: boolean;
	/** The answer to the last submission, whatever its status. */
	answer?: Response;
	/** Why the last submission has no answer. Submitting the same again has the same key. */
	error?: unknown;
	/**
	 * Sends body by latchedFetch, with POST unless init has another method. While a submission is under
	 * way, it sends nothing, and returns the promise of that one. The promise is never rejected: it
	 * resolves to undefined if there is an error.
	 */
	submit(body?: BodyInit | null): Promise<Response | undefined>;
}

/** The state of a submission, and the function that starts one, for a component of React 18 or later. */
export function useSubmit(url: RequestInfo | URL, init?: Omit<LatchedInit, "body">): Submission;
