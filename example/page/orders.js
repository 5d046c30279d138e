// The orders that exist, as the server lists them.
const $ = (id) => document.getElementById(id);
let shown = [], of = "";

// knownOrders holds the IDs of the orders shown.
export const knownOrders = () => new Set(shown.map((o) => o.id));

// showOrders fetches the orders of user, marks those that are not in before,
// and returns them all.
export async function showOrders(user, before) {
  of = user;
  const answer = await fetch("/orders?user=" + encodeURIComponent(user)).catch(() => null);
  const orders = answer?.ok ? await answer.json() : [];
  if (user !== of) return orders;
  shown = orders;
  $("count").textContent = orders.length;
  $("orders").replaceChildren(...orders.slice(-24).toReversed().map((o) => {
    const item = document.createElement("li"), id = document.createElement("code");
    id.textContent = o.id.slice(0, 6);
    id.title = o.id;
    item.append(id, ` ${o.quantity} × ${o.sku}`);
    item.className = before && !before.has(o.id) ? "new" : "";
    return item;
  }));
  return orders;
}
