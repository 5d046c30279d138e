// The page works without this script: then the browser submits the form. With it,
// every click is a separate submission, and the page shows all of them.
import { send } from "./send.js";
import { Timeline } from "./timeline.js";
import { verdict } from "./words.js";
import { watchLockout } from "./lockout.js";
import { knownOrders, showOrders } from "./orders.js";

const $ = (id) => document.getElementById(id);
const form = $("form");
const timeline = new Timeline($("bursts"));
let burst = null; // the submissions in flight

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form));
  if (!burst) begin(fields, event.timeStamp);
  burst.running++;
  submit(burst, fields, event.timeStamp);
});

function begin(fields, now) {
  const guard = form.querySelector("[name=guard]:checked + span").textContent;
  burst = { user: fields.get("user"), naive: fields.get("guard") === "naive", before: knownOrders(), tries: [], running: 0 };
  burst.view = timeline.begin(guard, fields.has("lose"), now);
  say("Sent …", "");
}

async function submit(mine, fields, now) {
  const row = mine.view.add(now);
  const got = await send(fields, usesKey());
  row.answered(got);
  mine.tries.push(got);
  if (got.order && usesKey()) $("used").hidden = false;
  if (--mine.running === 0) {
    burst = null;
    await end(mine);
  }
}

async function end(mine) {
  const [orders, locked] = await Promise.all([showOrders(mine.user, mine.before), watchLockout(mine.user)]);
  const made = orders.filter((o) => !mine.before.has(o.id)).length;
  const { result, text, tone } = verdict(mine.tries, made, mine.naive && locked);
  mine.view.end(result, tone);
  if (!burst) say(text, tone);
}

function say(text, tone) {
  $("outcome").textContent = text;
  $("outcome").className = "verdict " + tone;
}

// The one-time key identifies the submissions of one order. It stays with the form
// however often the form is sent, and changes with the form's values.
function renew() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const key = Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  form.elements.once.value = key;
  $("key").textContent = key.slice(0, 6);
  $("used").hidden = true;
}

const usesKey = () => ["idempotent", "both"].includes(form.elements.guard.value);

form.addEventListener("change", renew);
$("renew").addEventListener("click", () => {
  renew();
  form.querySelector(".order").focus();
});
form.elements.user.addEventListener("change", refresh);

function refresh() {
  const user = form.elements.user.value;
  return Promise.all([showOrders(user, null), watchLockout(user)]);
}

await refresh();
document.documentElement.dataset.ready = "";
