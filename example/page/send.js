// send submits the form once and returns the result: kind is ran, replayed,
// refused or failed.
export async function send(fields) {
  let answer, body;
  try {
    answer = await fetch("/try", { method: "POST", body: fields, headers: { Accept: "application/json" } });
    body = await answer.json();
  } catch {
    return { kind: "failed", tag: "No answer", text: "The connection ended.", claims: [] };
  }
  const claims = (answer.headers.get("X-Claims") ?? "").split(", ").filter(Boolean);
  if (answer.ok) {
    const replayed = answer.headers.has("Idempotent-Replayed");
    return {
      kind: replayed ? "replayed" : "ran", tag: replayed ? "Replayed" : "Ran",
      text: "order " + body.id.slice(0, 6) + (replayed ? " again" : ""), order: body.id, claims,
    };
  }
  const retry = answer.headers.get("Retry-After");
  return {
    kind: answer.status < 500 ? "refused" : "failed", tag: String(answer.status), status: answer.status,
    text: (body.detail ?? body.title) + (retry > 1 ? ` Again in ${retry} s.` : ""), claims,
  };
}
