import { randomHex } from "./random.js";
import { send } from "./send.js";
import { ordersOf, stateOf } from "./server.js";

// usesKey: behind these guards, a form that is sent again with its key is the same order.
export const usesKey = (guard) => ["idempotent", "both"].includes(guard);

// A Burst is a group of clicks of one customer, on one form, with a view of them. The server
// notes which orders it places: other clients may order for the same customer.
export class Burst {
  constructor(fields, clicks) {
    this.id = randomHex();
    this.user = fields.get("user");
    this.guard = fields.get("guard");
    this.clicks = clicks;
    this.tries = [];
    this.running = 0;
  }

  // click sends the form once and returns its result.
  async click(fields, now = performance.now()) {
    this.running++;
    const row = this.clicks.add(now);
    const got = await send(fields, usesKey(this.guard), this.id);
    row.answered(got);
    this.tries.push(got);
    this.running--;
    return got;
  }

  // result returns the result of the clicks: the orders of the customer, the IDs of those of
  // this burst, how many of these exist, for how many minutes in all the naive lock keeps the
  // customer out, and its state. orders and made are null if they could not be read.
  async result() {
    const [state, orders] = await Promise.all([stateOf(this.user, this.id), ordersOf(this.user)]);
    // Another desk may have noted some of them.
    const ids = new Set([...(state?.placed ?? []), ...this.tries.filter((t) => t.kind === "ran").map((t) => t.order)]);
    const made = state && orders && orders.filter((o) => ids.has(o.id)).length;
    return { orders, ids, made, lockedOut: this.guard === "naive" && state?.left_ms > 0 ? state.of_ms / 60_000 : 0, state };
  }
}
