// Timeline shows submissions as bars, concurrent ones on one scale of time.
const kept = 4; // bursts

// The result of a claim, as the server saw it.
const claimWords = {
  lost: "claim granted, but its reply lost", unheard: "claim refused, and its reply lost", granted: "claim granted", refused: "claim refused", failed: "claim failed",
};

export class Timeline {
  constructor(list) { this.list = list; }

  // begin shows the submissions sent from began on: a time of performance.now.
  begin(guard, lose, began) {
    const burst = new Burst(guard, lose, began);
    this.list.prepend(burst.element);
    while (this.list.children.length > kept) this.list.lastChild.remove();
    return burst;
  }
}

class Burst {
  constructor(guard, lose, began) {
    this.began = began;
    this.rows = [];
    this.element = make("li", "burst");
    const header = make("header");
    this.result = make("span", "result");
    header.append(make("b", "", guard + (lose ? ", reply lost" : "")), this.result, make("time", "", new Date().toLocaleTimeString()));
    this.list = make("ol");
    this.axis = make("p", "axis");
    this.axis.setAttribute("aria-hidden", "true");
    this.element.append(header, this.list, this.axis);
    this.draw = this.draw.bind(this);
    requestAnimationFrame(this.draw);
  }

  add(sent) {
    const row = new Row(this.rows.length + 1, sent - this.began);
    this.rows.push(row);
    this.list.append(row.element);
    return { answered: (got) => row.answered(got, performance.now() - this.began) };
  }

  // end is called when all submissions are answered.
  end(result, tone) {
    this.result.textContent = result;
    this.element.classList.add(tone);
    for (const row of this.rows.filter((r) => r.element.classList.contains("ran")).slice(1)) row.element.classList.add("too");
    this.ended = true;
  }

  draw() {
    const now = performance.now() - this.began;
    const scale = Math.max(100, ...this.rows.map((r) => r.until ?? now));
    for (const row of this.rows) row.draw(scale, now);
    this.axis.replaceChildren(...[0, .5, 1].map((part) => make("span", "", seconds(part * scale))));
    if (!this.ended) requestAnimationFrame(this.draw);
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
      make("span", "times", `${hundredths(this.from)}–${seconds(until)}`));
    if (got.claims.some((c) => c === "lost" || c === "unheard")) {
      this.words.append(make("span", "claims", "Store: " + got.claims.map((c) => claimWords[c]).join(" → ")));
    }
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
