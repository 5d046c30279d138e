// verdict describes the result of a burst of clicks, in a word and in a sentence: made is the
// number of orders that it placed, null if the server did not say; lockedOut is for how many
// minutes a naive lock keeps the customer out.
export function verdict(tries, made, lockedOut) {
  const clicks = count(tries.length, "click");
  if (made === null) {
    return { result: "not counted", tone: "", text: clicks + ". The orders could not be counted: the server did not list them." };
  }
  const result = count(made, "order");
  const { text, tone } = judge(tries, made, lockedOut);
  return { result, tone, text: clicks + ", " + result + text };
}

function judge(tries, made, lockedOut) {
  const clicks = tries.length;
  const of = (kind) => tries.filter((t) => t.kind === kind).length;
  if (lockedOut && tries.some((t) => t.claims.includes("lost"))) {
    return bad(`: a packet was lost, and the customer is locked out for ${count(lockedOut, "minute")}.`);
  }
  if (lockedOut) return bad(": no packet is lost any more, and the customer is still locked out.");
  if (made > 1) return bad(`: the customer pays ${made === 2 ? "twice" : made + " times"}.`);
  const recovered = tries.some((t) => t.claims[0] === "lost" && t.claims.includes("granted"));
  const answered = of("ran") + of("replayed");
  if (made === 1 && answered === 0) return bad(", and the customer does not know: no answer came.");
  if (made === 1 && clicks === 1) return good(recovered ? ": a packet was lost, and the server asked again." : ".");
  if (made === 1 && answered === clicks) return good(`: ${clicks === 2 ? "both clicks" : "all clicks"} got its number.`);
  if (made === 1 && answered === 1 && of("refused") === clicks - 1) {
    return good(`: the ${clicks === 2 ? "second click was" : "other clicks were"} refused.`);
  }
  if (made === 1) return good(".");
  if (of("replayed") === clicks) return good(": this form had been sent before, and its answer came again.");
  if (of("ran") > 0) return bad(": the server answered that it placed one, and does not list it.");
  if (of("refused") === clicks) return { text: ". " + tries[0].text, tone: "" };
  return bad(". " + tries.find((t) => t.kind === "failed").text);
}

const good = (text) => ({ text, tone: "good" });
const bad = (text) => ({ text, tone: "bad" });

// lossWords says what was lost between the server and its store, and what the server did then;
// "" if nothing was. claims are the results of its requests for locks, in their order.
export function lossWords(claims) {
  const at = claims.findIndex((c) => c === "lost" || c === "unheard");
  switch (at < 0 ? "nothing" : claims[at + 1]) {
    case "nothing": return "";
    case "granted": return "The reply was lost. The server asked again, and has the lock.";
    case "refused": return "The reply was lost. The server asked again: the lock is not free.";
    case "failed": return "The reply was lost, and so was the next one.";
    default: return `The lock was ${claims[at] === "lost" ? "taken" : "not free"}, and the reply was lost: the server does not know.`;
  }
}

function count(n, what) {
  return (n || "no") + " " + what + (n > 1 ? "s" : "");
}
