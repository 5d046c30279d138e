// The stories of the stage: each plays scenes one after the other, with a new customer in each.
import { Burst, usesKey } from "./burst.js";
import { carts } from "./carts.js";
import { later } from "./later.js";
import { Lockout } from "./lockout.js";
import { pause } from "./pause.js";
import { randomHex } from "./random.js";
import { bringIntoView } from "./scroll.js";
import { Clicks } from "./timeline.js";
import { verdict } from "./words.js";

const doubleClick = 150, impatience = 1_000, reading = 2_500; // ms
const shortest = 2_200; // ms: scenes next to each other have one scale

const buttons = [...document.querySelectorAll("[data-plays]")];
const lockouts = new Map([...document.querySelectorAll(".scene:has(.lockout)")].map((s) => [s, new Lockout(s.querySelector(".lockout"))]));
let playing = false;

for (const button of buttons) button.addEventListener("click", () => play(button));

async function play(button) {
  if (playing) return;
  playing = true;
  for (const b of buttons) b.ariaDisabled = "true"; // and not disabled: the focus stays
  button.ariaBusy = "true";
  const scenes = button.dataset.plays.split(" ").map((id) => document.getElementById(id));
  for (const [i, scene] of scenes.entries()) {
    const moved = bringIntoView(scene, scene.querySelector(".verdict"));
    if (moved && i > 0) await pause(reading);
    await perform(scene);
  }
  button.ariaBusy = null;
  for (const b of buttons) b.ariaDisabled = null;
  playing = false;
}

const acts = { double: clicked(double), lost: clicked(lost), carts, later };

async function perform(scene) {
  const user = "guest-" + randomHex().slice(0, 6);
  say(scene, "Sent …", "");
  const proof = scene.querySelector(".proof");
  proof.href = "/orders?user=" + user;
  proof.textContent = "Orders of " + user;
  proof.hidden = false;
  lockouts.get(scene)?.show(user, null);
  const tries = scene.querySelector(".tries");
  tries.classList.remove("will");
  const clicks = new Clicks(tries, performance.now(), shortest);
  const found = await acts[scene.id.split("-")[0]](scene, user, clicks);
  clicks.end(found);
  say(scene, found.text, found.tone);
}

// clicked returns an act of clicks on one form, behind the guard of its scene.
function clicked(act) {
  return async (scene, user, clicks) => {
    const fields = new URLSearchParams({ once: randomHex(), user, sku: "tea", quantity: 1, guard: scene.dataset.guard });
    const burst = new Burst(fields, clicks);
    await act(burst, fields);
    const { made, lockedOut, state } = await burst.result();
    lockouts.get(scene)?.show(user, state);
    return verdict(burst.tries, made, lockedOut);
  };
}

async function double(burst, fields) {
  fields.set("work", "2s");
  const first = burst.click(fields);
  await pause(doubleClick);
  await Promise.all([first, burst.click(fields)]);
}

// lost: only the first click loses a reply. A form with a key stays as it was.
async function lost(burst, fields) {
  fields.set("lose", "1");
  if ((await burst.click(fields)).order) return;
  await pause(impatience);
  if (!usesKey(burst.guard)) fields.delete("lose");
  await burst.click(fields);
}

function say(scene, text, tone) {
  const line = scene.querySelector(".verdict");
  line.textContent = text;
  line.className = "verdict " + tone;
}
