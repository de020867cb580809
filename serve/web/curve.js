/** The cost-to-go along an episode, as a curve under its board. */

import { niceStep } from "./chart.js";
import { freshId, h, refill, s } from "./dom.js";
import { factsOf } from "./games.js";
import { costText, costWords } from "./wording.js";

const HEIGHT = 128;
const LEFT = 34;
const RIGHT = 14;
const TOP = 26;
const BOTTOM = 24;
/** Room that the word for infinite takes. */
const LABEL = 90;

/** A curve that follows an episode; `onSeek(position)` when somebody points at a turn. */
export class CostCurve {
  constructor(game, onSeek) {
    this.game = game;
    this.words = factsOf(game);
    this.onSeek = onSeek;
    this.title = s("title", { id: freshId("curve") });
    this.marks = s("g");
    this.svg = s("svg", { class: "cost-curve", role: "img", "aria-labelledby": this.title.id }, this.title, this.marks);
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointermove", (event) => event.buttons && this.point(event));
    this.note = h("p", { class: "curve-note" });
    this.element = h("figure", { class: "curve" },
      h("figcaption", {}, h("b", {}, this.words.letter), ` — ${this.words.meaning}`), this.svg, this.note);
    this.costs = [];
    this.position = 0;
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Show `costs` (one a position, null = hidden) and mark a position. */
  update(costs, position, isOver) {
    Object.assign(this, { costs, position, isOver });
    this.draw();
  }

  point(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const last = this.costs.length - 1;
    const position = Math.round(((x - LEFT) / Math.max(this.width - LEFT - RIGHT, 1)) * Math.max(last, 1));
    this.onSeek(Math.min(Math.max(position, 0), last));
  }

  draw() {
    const isHidden = this.costs.every((cost) => cost === null || cost === undefined);
    this.svg.classList.toggle("empty", isHidden);
    this.note.textContent = this.noteText(isHidden);
    this.width = this.element.clientWidth - 2;
    if (isHidden || this.width < 60) return;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.setAttribute("height", HEIGHT);
    this.title.textContent = `${this.words.letter} at each turn: ${this.costs.map((cost) => costText(cost, this.game)).join(", ")}`;
    refill(this.marks, this.axes(), this.way(), this.points());
  }

  noteText(isHidden) {
    if (isHidden) return this.isOver ? "The cost-to-go of this episode is not known." : `${this.words.letter} is hidden until the game is over: it would give the mines away.`;
    const now = this.costs[this.position];
    return typeof now === "number" ? `${costWords(now, this.game)} to go.` : `${this.words.letter}: ${costText(now, this.game)}.`;
  }

  x(position) {
    return LEFT + ((this.width - LEFT - RIGHT) * position) / Math.max(this.costs.length - 1, 1);
  }

  y(cost) {
    return HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * cost) / this.most();
  }

  most() {
    return Math.max(1, ...this.costs.filter((cost) => typeof cost === "number"));
  }

  axes() {
    const most = this.most();
    const step = most <= 4 ? 1 : niceStep(most / 3);
    const levels = [...Array(Math.floor(most / step) + 1).keys()].map((index) => index * step);
    const last = this.costs.length - 1;
    return [
      levels.map((level) => [
        s("path", { class: level ? "rule" : "axis", d: `M${LEFT} ${this.y(level)}H${this.width - RIGHT}` }),
        s("text", { class: "tick end", x: LEFT - 7, y: this.y(level), dy: "0.35em" }, String(level)),
      ]),
      s("text", { class: "tick", x: LEFT, y: HEIGHT - 6 }, "start"),
      last > 1 ? s("text", { class: "tick end", x: this.width - RIGHT, y: HEIGHT - 6 }, `turn ${last}`) : null,
    ];
  }

  /** The line, broken where a cost is no number. */
  way() {
    let d = "";
    this.costs.forEach((cost, position) => {
      if (typeof cost !== "number") return;
      const isJoined = position > 0 && typeof this.costs[position - 1] === "number";
      d += `${isJoined ? "L" : "M"}${this.x(position)} ${this.y(cost)}`;
    });
    return s("path", { class: "way", d });
  }

  points() {
    const isDense = this.costs.length > 60;
    return [
      s("path", { class: "now", d: `M${this.x(this.position)} ${TOP - 16}V${HEIGHT - BOTTOM}` }),
      this.costs.map((cost, position) => {
        const x = this.x(position);
        const isNow = position === this.position;
        if (typeof cost === "number") return isDense && !isNow ? null : s("circle", { class: isNow ? "point now" : "point", cx: x, cy: this.y(cost), r: isNow ? 5.5 : 3 });
        if (cost === "dead") return s("path", { class: `dead${isNow ? " now" : ""}`, d: `M${x - 4} ${TOP - 12}l8 8m0-8l-8 8` });
        return cost === "unknown" ? s("text", { class: `unknown${isNow ? " now" : ""}`, x, y: TOP - 4 }, "?") : null;
      }),
      this.costs.includes("dead") ? s("text", { class: "dead-label", ...this.besideDead() }, this.words.infinite) : null,
    ];
  }

  /** Where the word for infinite stands: left of the first mark where there is room, else behind the last. */
  besideDead() {
    const first = this.x(this.costs.indexOf("dead"));
    const last = this.x(this.costs.lastIndexOf("dead"));
    if (first > LEFT + LABEL) return { x: first - 10, y: TOP - 4, class: "dead-label end" };
    if (last + LABEL < this.width) return { x: last + 10, y: TOP - 4 };
    return { x: (first + last) / 2, y: TOP - 14, class: "dead-label middle" };
  }
}
