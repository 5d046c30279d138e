import { stateOf } from "./server.js";

const askEvery = 5_000; // ms: an operator may end the lock

// A Lockout counts down the naive lock that no order holds and no process frees. The server
// reads the remaining time from the store.
export class Lockout {
  constructor(box) {
    this.box = box;
    this.clock = box.querySelector(".clock");
    this.rest = box.querySelector(".rest div");
  }

  // show shows the state of user's lock; null hides it.
  show(user, state) {
    clearInterval(this.timer);
    const asked = performance.now();
    const ends = asked + (state?.left_ms ?? 0);
    const tick = async () => {
      const now = performance.now(), rest = Math.ceil((ends - now) / 1000);
      this.box.hidden = rest <= 0;
      this.clock.textContent = `${Math.floor(rest / 60)}:${String(rest % 60).padStart(2, "0")}`;
      this.rest.style.width = Math.min(100, 100 * (ends - now) / state?.of_ms) + "%";
      if (rest <= 0) return clearInterval(this.timer);
      if (now - asked < askEvery) return;
      clearInterval(this.timer);
      const mine = this.timer;
      const newer = await stateOf(user) ?? { ...state, left_ms: ends - performance.now() };
      if (mine === this.timer) this.show(user, newer);
    };
    this.timer = ends > asked ? setInterval(tick, 250) : 0;
    tick();
  }
}
