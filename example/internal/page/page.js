// The page works without this script: then the browser submits the form. With it,
// every click is a separate submission, and the page shows all of them.
import { Burst, usesKey } from "./burst.js";
import { Lockout } from "./lockout.js";
import { showOrders } from "./orders.js";
import { randomHex } from "./random.js";
import { bringIntoView } from "./scroll.js";
import { ordersOf, stateOf } from "./server.js";
import { Timeline } from "./timeline.js";
import { verdict } from "./words.js";
import "./stories.js";

const $ = (id) => document.getElementById(id);
const form = $("form");
const timeline = new Timeline($("bursts"));
const lockout = new Lockout($("lockout"));
let burst = null; // the clicks under way on the form as it is

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form));
  if (burst?.form !== String(fields)) begin(fields, event.timeStamp);
  const mine = burst;
  const got = await mine.click(fields, event.timeStamp);
  if (got.order && usesKey(mine.guard) && burst === mine) $("used").hidden = false;
  if (mine.running === 0) await end(mine);
});

function begin(fields, now) {
  const guard = form.querySelector("[name=guard]:checked + span").textContent;
  burst = new Burst(fields, timeline.begin(guard + (fields.has("lose") ? ", lost packet" : ""), now));
  burst.form = String(fields);
  say("Sent …", "");
}

async function end(mine) {
  const latest = burst === mine;
  if (latest) burst = null;
  const { orders, ids, made, lockedOut, state } = await mine.result();
  const found = verdict(mine.tries, made, lockedOut);
  mine.clicks.end(found);
  if (mine.user === form.elements.user.value) {
    if (orders) showOrders(orders, ids);
    lockout.show(mine.user, state);
  }
  if (!latest || burst) return; // there is a newer one
  say(found.text, found.tone);
  bringIntoView($("outcome"));
}

function say(text, tone) {
  $("outcome").textContent = text;
  $("outcome").className = "verdict " + tone;
}

// The one-time key identifies the submissions of one order. It stays with the form
// however often the form is sent, and changes with the form's values.
function renew() {
  const key = randomHex();
  form.elements.once.value = key;
  $("key").textContent = key.slice(0, 6);
  $("used").hidden = true;
}

form.addEventListener("change", renew);
$("renew").addEventListener("click", () => {
  renew();
  form.querySelector(".order").focus();
});
form.elements.user.addEventListener("change", refresh);

async function refresh() {
  const user = form.elements.user.value;
  const [state, orders] = await Promise.all([stateOf(user), ordersOf(user)]);
  if (user !== form.elements.user.value) return;
  if (orders) showOrders(orders, new Set());
  lockout.show(user, state);
}

await refresh();
document.documentElement.dataset.ready = "";
