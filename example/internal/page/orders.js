const $ = (id) => document.getElementById(id);

// showOrders shows the orders that exist, and marks those in made, a set of IDs.
export function showOrders(orders, made) {
  $("count").textContent = orders.length;
  $("orders").replaceChildren(...orders.slice(-24).toReversed().map((o) => {
    const item = document.createElement("li"), id = document.createElement("code");
    id.textContent = o.id.slice(0, 6);
    id.title = o.id;
    item.append(id, ` ${o.quantity} × ${o.sku}`);
    item.className = made.has(o.id) ? "new" : "";
    return item;
  }));
}
