/** SVG charts: lines or stacked bars over integers such as steps, and named confidence intervals. */

import { freshId, h, refill, s } from "./dom.js";
import { formatOf, isWritten, sizeOf } from "./units.js";

const HEIGHT = 200;
const TOP = 24;
const BOTTOM = 38;
const RIGHT = 14;
/** Mean width of a letter, in pixels: of ticks, and of the names at the ends of lines. */
const [LETTER, NAME_LETTER] = [7, 7.6];
const NAME_HEIGHT = 15;
const MOST_MARKERS = 40;
const INFINITE = "infinite";
const MARKERS = {
  a: "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z",
  b: "M-3.2-3.2h6.4v6.4h-6.4z",
  c: "M0-4.2L4 3H-4z",
  d: "M0-4.6L4.6 0L0 4.6L-4.6 0z",
};

/**
 * A chart that fits its place, and tells the values under the pointer.
 *
 * `spec` is `{label, x, unit, from_zero, infinite, lines, parts, intervals}` with one of
 * `lines`: `[{name, style: "a" to "d", points: [[x, y], …]}, …]`, y is null where unknown, or "infinite";
 * `parts`: `[{name, style, points}, …]` of bars, from below; `intervals`: `[{name, style, low, value, high}, …]`.
 * `unit` is a metric's (units.js), `x` names the axis, `infinite` is the word for infinite values.
 */
export class Chart {
  constructor(spec, { step = null, onStep = null } = {}) {
    Object.assign(this, { spec, step });
    this.series = (spec.lines ?? spec.parts ?? []).filter(({ points }) => points.some(([, y]) => y !== null));
    this.title = s("title", { id: freshId("chart") });
    this.marks = s("g");
    this.svg = s("svg", { class: "chart", role: "img", "aria-labelledby": this.title.id }, this.title, this.marks);
    this.readout = h("p", { class: "readout", "aria-hidden": "true" });
    this.element = h("div", { class: "chart-place" }, this.readout, this.svg);
    if (!this.series.length && !spec.intervals?.length) {
      refill(this.element, h("p", { class: "soft empty" }, "not measured"));
      return;
    }
    this.numbers = [...new Set(this.series.flatMap(({ points }) => points.map(([x]) => x)))].sort((one, other) => one - other);
    this.title.textContent = this.words();
    this.svg.addEventListener("pointermove", (event) => this.tell(this.numberAt(event)));
    this.svg.addEventListener("pointerleave", () => this.tell(null));
    if (onStep) {
      this.svg.classList.add("steps");
      this.svg.addEventListener("click", (event) => onStep(this.numberAt(event)));
    }
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Everything that the picture says, for those who do not see it. */
  words() {
    const { label, unit, x, intervals } = this.spec;
    const told = intervals
      ? intervals.map(({ name, low, value, high }) => `${name}: ${this.text(value)}, ${this.text(low)} to ${this.text(high)}`)
      : this.series.map(({ name, points }) => {
        const known = points.filter(([, y]) => y !== null);
        return `${name}: from ${this.text(known[0][1])} to ${this.text(known.at(-1)[1])}`;
      });
    return `${label}${x ? ` by ${x}` : ""}${unit && unit !== "share" ? `, in ${unit}` : ""}. ${told.join("; ")}.`;
  }

  text(value) {
    return value === INFINITE ? this.spec.infinite ?? "∞" : formatOf(this.spec.unit, [value])(value);
  }

  draw() {
    this.width = this.element.clientWidth;
    if (this.width < 80) return;
    const { intervals, parts } = this.spec;
    this.height = intervals ? 34 * intervals.length + 30 : HEIGHT;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    if (intervals) {
      refill(this.marks, this.intervals());
      return;
    }
    this.scale();
    refill(this.marks, this.axes(), parts ? this.bars() : [this.series.map((line) => this.line(line)), this.names()]);
    this.tell(null);
  }

  scale() {
    const { unit, parts, from_zero: fromZero = true, infinite } = this.spec;
    const totals = new Map();
    for (const [number, value] of (parts ?? []).flatMap(({ points }) => points)) totals.set(number, (totals.get(number) ?? 0) + (value ?? 0));
    const values = [...totals.values(), ...this.series.flatMap(({ points }) => points.map(([, y]) => y))].filter((y) => typeof y === "number");
    this.ticks = ticksOf(values, fromZero, unit);
    this.format = formatOf(unit, this.ticks);
    this.hasInfinite = this.series.some(({ points }) => points.some(([, y]) => y === INFINITE));
    const labels = [...this.ticks.map(this.format), ...(this.hasInfinite ? [infinite ?? "∞"] : [])];
    this.left = 12 + LETTER * Math.max(...labels.map((label) => label.length));
    const longest = Math.max(...this.series.map(({ name }) => name.length));
    this.right = this.width - RIGHT - (!parts && this.series.length > 1 ? NAME_LETTER * longest + 6 : 0);
    this.top = this.hasInfinite ? TOP + 22 : TOP;
    const [low, high] = [this.ticks[0], this.ticks.at(-1)];
    const [first, last] = [this.numbers[0], this.numbers.at(-1)];
    const bar = parts ? (this.right - this.left) / Math.max(last - first + 1, 1) : 0;
    const reach = this.right - this.left - bar;
    this.bar = bar;
    this.x = (number) => this.left + bar / 2 + (last > first ? (reach * (number - first)) / (last - first) : reach / 2);
    this.y = (value) => (value === INFINITE ? TOP : HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - this.top) * (value - low)) / (high - low));
  }

  axes() {
    const { x, unit, infinite } = this.spec;
    const [first, last] = [this.numbers[0], this.numbers.at(-1)];
    const every = Math.max(1, niceStep((last - first) / Math.max(2, (this.right - this.left) / 60)));
    const steps = Array.from({ length: Math.floor(last / every) - Math.ceil(first / every) + 1 }, (_, place) => (Math.ceil(first / every) + place) * every);
    const rule = (level, text, kind) => [
      s("path", { class: kind, d: `M${this.left} ${level}H${this.right}` }),
      s("text", { class: "tick end", x: this.left - 7, y: level, dy: "0.35em" }, text),
    ];
    return [
      this.ticks.map((tick) => rule(this.y(tick), this.format(tick), tick === 0 ? "axis" : "rule")),
      this.hasInfinite ? rule(TOP, infinite ?? "∞", "rule") : null,
      steps.map((number) => s("text", { class: "tick middle", x: this.x(number), y: HEIGHT - BOTTOM + 16 }, String(number))),
      s("text", { class: "tick end", x: this.right, y: HEIGHT - 5 }, x),
      s("text", { class: "tick", x: 0, y: 11 }, isWritten(unit) ? "" : unit),
      this.step === null ? null : s("path", { class: "now", d: `M${this.x(this.step)} ${TOP}V${HEIGHT - BOTTOM}` }),
    ];
  }

  /** A line, joined over numbers without a value: validation is measured every few steps. */
  line({ style, points }) {
    const known = points.filter(([, y]) => y !== null).map(([x, y]) => [this.x(x), this.y(y)]);
    const marks = known.length > MOST_MARKERS ? [] : known;
    return s("g", { class: `style-${style}` },
      s("path", { class: "way", d: `M${known.map((place) => place.join(" ")).join("L")}` }),
      marks.map(([x, y]) => s("path", { class: "marker", d: MARKERS[style], transform: `translate(${x} ${y})` })));
  }

  /** The lines' names at their right ends, moved apart. */
  names() {
    if (this.series.length < 2) return null;
    const wanted = this.series.map((line) => ({ line, y: this.y(line.points.findLast(([, y]) => y !== null)[1]) })).sort((one, other) => one.y - other.y);
    wanted.forEach((name, place) => {
      if (place) name.y = Math.max(name.y, wanted[place - 1].y + NAME_HEIGHT);
    });
    const overshoot = Math.max(0, wanted.at(-1).y - (HEIGHT - BOTTOM));
    return wanted.map(({ line: { name, style }, y }) => s("text", { class: `name style-${style}`, x: this.right + 8, y: y - overshoot, dy: "0.35em" }, name));
  }

  bars() {
    const below = new Map();
    return this.spec.parts.map((part) => s("g", { class: `part ${part.style}` }, part.points.map(([number, value]) => {
      const from = below.get(number) ?? 0;
      below.set(number, from + (value ?? 0));
      const width = this.bar > 6 ? this.bar - 2 : this.bar;
      return value ? s("rect", { x: this.x(number) - width / 2, width, y: this.y(from + value), height: this.y(from) - this.y(from + value) }) : null;
    })));
  }

  intervals() {
    const { intervals } = this.spec;
    const [left, right] = [16 + NAME_LETTER * Math.max(...intervals.map(({ name }) => name.length)), this.width - 60];
    const ticks = ticksOf(intervals.map(({ high }) => high), true, this.spec.unit);
    const x = (value) => left + ((right - left) * value) / ticks.at(-1);
    return [
      ticks.map((tick) => [
        s("path", { class: "rule", d: `M${x(tick)} 4V${this.height - 22}` }),
        s("text", { class: "tick middle", x: x(tick), y: this.height - 6 }, formatOf(this.spec.unit, ticks)(tick)),
      ]),
      intervals.map(({ name, style, low, value, high }, place) => {
        const y = 22 + 34 * place;
        return s("g", { class: `style-${style}` },
          s("text", { class: "name", x: 0, y, dy: "0.35em" }, name),
          s("path", { class: "way", d: `M${x(low)} ${y}H${x(high)}M${x(low)} ${y - 5}v10M${x(high)} ${y - 5}v10` }),
          s("path", { class: "marker", d: MARKERS[style], transform: `translate(${x(value)} ${y}) scale(1.6)` }),
          s("text", { class: "figure", x: x(high) + 9, y, dy: "0.35em" }, this.text(value)));
      }),
    ];
  }

  /** Return the number of the x axis that is nearest to a pointer. */
  numberAt(event) {
    const place = event.clientX - this.svg.getBoundingClientRect().left;
    return this.numbers.reduce((best, number) => (Math.abs(this.x(number) - place) < Math.abs(this.x(best) - place) ? number : best));
  }

  /** Mark a step. */
  setStep(step) {
    this.step = step;
    if (this.x) this.draw();
  }

  /** Write the values of a number above the chart, the last ones without a number. */
  tell(number) {
    const parts = this.series.map((series) => {
      const value = number === null ? series.points.findLast(([, y]) => y !== null)[1] : valueAt(series, number);
      const text = value === null || value === undefined ? "–" : this.text(value);
      return h("span", { class: `value ${this.spec.parts ? series.style : `style-${series.style}`}` }, this.series.length > 1 ? `${series.name} ${text}` : text);
    });
    refill(this.readout, h("span", { class: "soft" }, number === null ? "last " : `${this.spec.x} ${number} `), parts);
  }
}

function valueAt({ points }, number) {
  return points.find(([x]) => x === number)?.[1] ?? null;
}

/** Return round values that cover all others, from below the least to above the largest. */
function ticksOf(values, fromZero, unit) {
  const size = sizeOf(unit, values);
  if (size !== 1) return ticksOf(values.map((value) => value / size), fromZero, "").map((tick) => tick * size);
  const known = values.length ? values : [0];
  let [low, high] = [Math.min(...known), Math.max(...known)];
  if (fromZero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (low === high) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 2, high + Math.abs(high) / 2];
  const tick = niceStep((high - low) / 4);
  const last = unit === "share" && high <= 1 ? Math.min(Math.ceil(high / tick - 1e-9) * tick, 1) : Math.ceil(high / tick - 1e-9) * tick;
  const first = Math.floor(low / tick + 1e-9);
  const ticks = Array.from({ length: Math.round(last / tick) - first + 1 }, (_, place) => (first + place) * tick);
  return ticks.at(-1) < last - 1e-9 ? [...ticks, last] : ticks;
}

/** Return a step of 1, 2 or 5 times a power of ten, not below `value`. */
export function niceStep(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5].find((digit) => digit * power >= value * (1 - 1e-9)) ?? 10);
}
