// Counts down the naive lock that no order holds and no process frees. The server
// reads the remaining time from the store.
const $ = (id) => document.getElementById(id);
let timer = 0, asked = 0;

// watchLockout shows whether user is locked out, and returns it.
export async function watchLockout(user) {
  const mine = ++asked;
  const answer = await fetch("/try?user=" + encodeURIComponent(user)).catch(() => null);
  const { left_ms, of_ms } = answer?.ok ? await answer.json() : { left_ms: 0, of_ms: 1 };
  const left = left_ms / 1000;
  if (mine !== asked) return left > 0;
  clearInterval(timer);
  const ends = performance.now() / 1000 + left;
  const tick = () => {
    const rest = ends - performance.now() / 1000;
    $("lockout").hidden = rest <= 0;
    $("left").textContent = `${Math.floor(Math.ceil(rest) / 60)}:${String(Math.ceil(rest) % 60).padStart(2, "0")}`;
    $("rest").style.width = Math.min(100, 100_000 * rest / of_ms) + "%";
    if (rest <= 0) clearInterval(timer);
  };
  tick();
  if (left > 0) timer = setInterval(tick, 250);
  return left > 0;
}
