import { useState } from "react";
import { createRoot } from "react-dom/client";
import { useSubmit } from "httplatch/react";

const headers = { "Content-Type": "application/json" };

// usePlain is what useSubmit is compared with: the loop that many pages have, without a key.
function usePlain(url, init) {
	const [state, setState] = useState({});
	return {
		...state,
		async submit(body) {
			for (;;) {
				const answer = await fetch(url, { method: "POST", ...init, body }).catch(() => null);
				if (answer?.ok) return setState({ answer });
				await new Promise((resolve) => setTimeout(resolve, 300));
			}
		},
	};
}

const use = location.search.includes("plain") ? usePlain : useSubmit;

function Order() {
	const { submit, pending, answer, error } = use("/orders", { headers });
	const [sku, setSku] = useState("tea");
	function order(event) {
		event.preventDefault();
		submit(JSON.stringify({ sku, quantity: 1 }));
	}
	return (
		<form onSubmit={order}>
			<input value={sku} onChange={(e) => setSku(e.target.value)} />
			<button aria-disabled={pending}>Order</button>
			<p>{pending ? "pending" : error ? "failed" : answer ? `answer ${answer.status}` : "ready"}</p>
		</form>
	);
}

createRoot(document.querySelector("main")).render(<Order />);
