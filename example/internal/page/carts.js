import { postJSON } from "./json.js";
import { pause } from "./pause.js";

const second = 150; // ms: when the second customer comes

// carts: two customers order two items each at the same time. In carts-shared both want the cup.
export async function carts(scene, user, clicks) {
  const other = user + "-2", shared = scene.id === "carts-shared";
  const order = (customer, ...items) => {
    const row = clicks.add(performance.now());
    // The items of this scene are no other visitor's.
    const cart = { items: items.map((item) => ({ sku: item + "-" + user, quantity: 1 })) };
    return postJSON("/carts", customer, { "X-Work": "1s" }, cart, [201]).then((got) => {
      if (got.kind === "done") got.text = items.join(" and ");
      row.answered(got);
      return got;
    });
  };
  const first = order(user, "tea", "cup");
  await pause(second);
  const theirs = () => order(other, shared ? "cup" : "pot", "honey");
  const got = [...await Promise.all([first, theirs()])];
  if (shared) got.push(await theirs());
  if (got.map((g) => g.kind).join() === (shared ? "done,refused,done" : "done,done")) {
    return { tone: "good", text: shared ?
      "The second cart was refused, with the name of the item. It was placed when the first had ended." :
      "Both carts were placed at the same time." };
  }
  return { tone: "bad", text: "The carts were not served as they should be: " + got.map((g) => g.text).join(" ") };
}
