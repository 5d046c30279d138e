import { useRef, useState } from "react";
import { latchedFetch } from "./index.js";

export function useSubmit(url, init) {
	const [state, setState] = useState({ pending: false });
	const current = useRef();
	const send = async (body) => {
		setState({ pending: true });
		try {
			const answer = await latchedFetch(url, { method: "POST", ...init, body });
			setState({ pending: false, answer });
			return answer;
		} catch (error) {
			setState({ pending: false, error });
		} finally {
			current.current = undefined;
		}
	};
	return { ...state, submit: (body) => (current.current ??= send(body)) };
}
