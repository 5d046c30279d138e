// send submits the form once and returns the result: kind is ran, replayed,
// refused or failed. With keyed, behind a guard that knows the form's one-time key, the
// submission is sent again, with that key, when its connection breaks or the server asks
// for it. Without, that could be a second order. The server notes the order under burst.
export async function send(fields, keyed, burst) {
  let answer, body;
  try {
    const post = keyed ? latch.fetch : fetch;
    answer = await post("/try", { method: "POST", body: fields, headers: { Accept: "application/json", "X-Burst": burst } });
    body = await answer.json();
  } catch {
    return { kind: "failed", tag: "No answer", text: "The connection ended.", claims: [] };
  }
  const claims = (answer.headers.get("X-Claims") ?? "").split(", ").filter(Boolean);
  if (answer.ok) {
    const replayed = answer.headers.has("Idempotent-Replayed");
    return {
      kind: replayed ? "replayed" : "ran", tag: replayed ? "Repeated" : "Placed", status: answer.status,
      text: "order " + body.id.slice(0, 6) + (replayed ? ", not a second one" : ""), order: body.id, claims,
    };
  }
  const retry = answer.headers.get("Retry-After");
  const refused = answer.status < 500;
  return {
    kind: refused ? "refused" : "failed", tag: refused ? "Refused" : "Failed", status: answer.status,
    text: (body.detail ?? body.title) + (retry > 1 ? ` Again in ${retry} s.` : ""), claims,
  };
}
