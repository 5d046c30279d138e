// postJSON posts a request of customer, and returns its answer as a row of clicks shows it: kind is done
// for each of the statuses in done.
export async function postJSON(url, customer, headers, request, done) {
  try {
    const answer = await fetch(url, {
      method: "POST", body: JSON.stringify(request),
      headers: { "Content-Type": "application/json", "X-User-ID": customer, ...headers },
    });
    const body = await answer.json(), { status } = answer;
    if (done.includes(status)) return { kind: "done", tag: status === 202 ? "Accepted" : "Placed", status, text: "", body, claims: [] };
    const refused = status < 500;
    return { kind: refused ? "refused" : "failed", tag: refused ? "Refused" : "Failed", status, text: body.detail ?? body.title, body, claims: [] };
  } catch {
    return { kind: "failed", tag: "No answer", text: "The connection ended.", claims: [] };
  }
}
