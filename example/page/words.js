// verdict describes the result of a burst of clicks, in a word and in a sentence:
// made is the number of orders that the burst created.
export function verdict(tries, made, lockedOut) {
  const clicks = tries.length;
  const of = (kind) => tries.filter((t) => t.kind === kind).length;
  const recovered = tries.some((t) => t.claims[0] === "lost" && t.claims.includes("granted"));
  const result = count(made, "order"), begin = count(clicks, "click") + ", " + result;
  let text, tone = "good";
  if (lockedOut && tries.some((t) => t.claims.includes("lost"))) {
    text = begin + ". The lock was taken and its answer lost: this user is locked out.";
    tone = "bad";
  } else if (lockedOut) {
    text = begin + ". All answers arrive again, and this user is still locked out.";
    tone = "bad";
  } else if (made > 1) {
    text = begin + ": the customer pays " + (made === 2 ? "twice." : made + " times.");
    tone = "bad";
  } else if (made === 1 && clicks === 1) {
    text = begin + ".";
  } else if (made === 1 && of("replayed") === clicks - 1) {
    text = begin + ". Each click was given its number.";
  } else if (made === 1) {
    text = begin + ". Each further click was refused, with the reason.";
  } else if (of("replayed") === clicks) {
    text = "No second order: this form had been sent before, and its answer came again.";
  } else {
    text = "No order. " + tries[0].text;
    tone = "bad";
  }
  if (recovered && made > 0) text += " A reply was lost, and the lock was claimed again at once.";
  return { result, text, tone };
}

function count(n, what) {
  return (n || "no") + " " + what + (n > 1 ? "s" : "");
}
