import { lossWords } from "./words.js";

const kept = 4; // bursts

// Timeline lists bursts of clicks, the newest first.
export class Timeline {
  constructor(list) { this.list = list; }

  begin(title, began) {
    const element = make("li", "burst"), header = make("header"), list = make("ol", "tries");
    const result = make("span", "result");
    header.append(make("b", "", title), result, make("time", "", new Date().toLocaleTimeString()));
    element.append(header, list);
    this.list.prepend(element);
    while (this.list.children.length > kept) this.list.lastChild.remove();
    const clicks = new Clicks(list, began);
    clicks.ended = ({ result: text, tone }) => {
      result.textContent = text;
      if (tone) element.classList.add(tone);
    };
    return clicks;
  }
}

// Clicks shows clicks as bars on one scale of time, which begins at began, a time of
// performance.now, and is at least shortest milliseconds long.
export class Clicks {
  constructor(list, began, shortest = 100) {
    this.list = list;
    this.began = began;
    this.shortest = shortest;
    this.rows = [];
    list.replaceChildren();
    this.draw = this.draw.bind(this);
    requestAnimationFrame(this.draw);
  }

  add(sent) {
    const row = new Row(this.rows.length + 1, sent - this.began);
    this.rows.push(row);
    this.list.append(row.element);
    return { answered: (got) => row.answered(got, performance.now() - this.began) };
  }

  // end is called when all clicks are answered.
  end(verdict) {
    for (const row of this.rows.filter((r) => r.element.classList.contains("ran")).slice(1)) row.element.classList.add("too");
    this.over = true;
    this.ended?.(verdict);
  }

  draw() {
    const now = performance.now() - this.began;
    const scale = Math.max(this.shortest, ...this.rows.map((r) => r.until ?? now));
    for (const row of this.rows) row.draw(scale, now);
    if (!this.over) requestAnimationFrame(this.draw);
  }
}

class Row {
  constructor(number, from) {
    this.from = from;
    this.element = make("li", "try pending");
    const track = make("div", "track");
    track.setAttribute("aria-hidden", "true");
    this.bar = make("div", "bar");
    track.append(this.bar);
    this.words = make("p", "words");
    this.words.append(make("span", "tag", "Sent"), make("span", "times", "at " + seconds(from)));
    this.element.append(make("span", "number", String(number)), track, this.words);
  }

  answered(got, until) {
    this.until = until;
    this.element.className = "try " + got.kind;
    this.words.replaceChildren(make("span", "tag", got.tag), make("span", "text", got.text),
      make("span", "times", `${got.status ? got.status + " · " : ""}${hundredths(this.from)}–${seconds(until)}`));
    const lost = lossWords(got.claims);
    if (lost) this.words.append(make("span", "lost", lost));
  }

  // The page's Content-Security-Policy forbids style attributes, but not this.
  draw(scale, now) {
    this.bar.style.left = 100 * this.from / scale + "%";
    this.bar.style.width = 100 * ((this.until ?? now) - this.from) / scale + "%";
  }
}

function hundredths(ms) { return (ms / 1000).toFixed(2); }

function seconds(ms) { return hundredths(ms) + " s"; }

function make(name, className = "", text = "") {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.textContent = text;
  return e;
}
