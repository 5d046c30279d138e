// What the page asks the server, except for orders. null is no answer.
export const ordersOf = (user) => get("/orders?user=" + encodeURIComponent(user));

// stateOf returns for how long the naive lock keeps user out, left_ms of of_ms, and the IDs of
// the orders that the server noted under burst, if one is given: placed.
export async function stateOf(user, burst = "") {
  const got = await get(`/try?user=${encodeURIComponent(user)}&burst=${burst}`);
  return got && { ...got, placed: got.placed ?? [] };
}

async function get(url) {
  try {
    const answer = await fetch(url);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
