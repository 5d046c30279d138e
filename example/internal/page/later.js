import { postJSON } from "./json.js";
import { pause } from "./pause.js";
import { randomHex } from "./random.js";

const again = 250, patience = 90_000; // ms

// later: the order is accepted at once, and placed by a worker. The customer asks until it is.
export async function later(_, user, clicks) {
  const key = randomHex();
  const ask = () => postJSON("/orders?later=1", user, { "Idempotency-Key": key }, { sku: "tea", quantity: 1 }, [201, 202]);
  const began = performance.now(), click = clicks.add(began);
  const accepted = await ask();
  if (accepted.kind === "done") accepted.text = "order " + accepted.body.id.slice(0, 6);
  click.answered(accepted);
  if (accepted.status !== 202) return { tone: "bad", text: "The order was not accepted: " + accepted.text };
  const repeats = clicks.add(performance.now());
  let got = accepted;
  while (got.status !== 201 && performance.now() < began + patience) {
    await pause(again);
    got = await ask(); // a repeat that is refused is asked again, as one that is accepted
  }
  const took = ((performance.now() - began) / 1000).toFixed(1);
  if (got.status === 201) got.text = "order " + got.body.id.slice(0, 6);
  repeats.answered(got);
  if (got.status !== 201 || got.body.id !== accepted.body.id) return { tone: "bad", text: `After ${took} seconds the order is not placed.` };
  return { tone: "good", text: `1 order: accepted at once, and placed by a worker after ${took} seconds.` };
}
