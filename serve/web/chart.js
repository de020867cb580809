/** Curves of metrics over steps: one small chart a metric, a line a run. */

import { freshId, h, refill, s } from "./dom.js";
import { niceStep } from "./curve.js";
import { figure } from "./wording.js";

const HEIGHT = 170;
const LEFT = 48;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 24;
const MOST_MARKERS = 40;
const MARKERS = {
  a: (x, y) => s("circle", { class: "marker a", cx: x, cy: y, r: 3.2 }),
  b: (x, y) => s("rect", { class: "marker b", x: x - 3, y: y - 3, width: 6, height: 6 }),
};

/** A chart of one metric. `lines` are `{style: "a" | "b", label, steps, values}`, null where unknown. */
export class MetricChart {
  constructor(name, lines, { step = null, onStep = null } = {}) {
    Object.assign(this, { name, lines, step, onStep });
    this.title = s("title", { id: freshId("chart") });
    this.marks = s("g");
    this.svg = s("svg", { class: "chart", role: "img", "aria-labelledby": this.title.id }, this.title, this.marks);
    this.readout = h("span", { class: "readout" });
    this.element = h("figure", { class: "card metric" }, h("figcaption", {}, h("span", {}, metricTitle(name)), this.readout), this.svg);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.tell(null));
    if (onStep) {
      this.svg.classList.add("steps");
      this.svg.addEventListener("click", (event) => onStep(this.stepAt(event)));
    }
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  scale() {
    const values = this.lines.flatMap(({ values: all }) => all.filter((value) => value !== null));
    const steps = this.lines.flatMap(({ steps: all }) => all);
    const isShare = /success/.test(this.name);
    let [low, high] = isShare ? [0, 1] : [Math.min(0, ...values), Math.max(...values, 0)];
    if (low === high) high = low + 1;
    const tick = isShare ? 0.25 : niceStep((high - low) / 4);
    low = tick * Math.floor(low / tick);
    high = tick * Math.ceil(high / tick);
    const [first, last] = [Math.min(...steps), Math.max(...steps)];
    return {
      low, high, tick, first, last,
      x: (step) => LEFT + ((this.width - LEFT - RIGHT) * (step - first)) / Math.max(last - first, 1),
      y: (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * (value - low)) / (high - low),
    };
  }

  draw() {
    this.width = this.element.clientWidth - 28;
    if (this.width < 60) return;
    if (!this.lines.some(({ values }) => values.some((value) => value !== null))) {
      this.svg.replaceWith(h("p", { class: "soft" }, "not measured"));
      return;
    }
    this.at = this.scale();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.setAttribute("height", HEIGHT);
    this.title.textContent = `${metricTitle(this.name)} by step. ${this.lines.map((line) => this.lineWords(line)).join(" ")}`;
    refill(this.marks, this.axes(), this.lines.map((line) => this.line(line)));
    this.tell(null);
  }

  lineWords({ label, values }) {
    const known = values.filter((value) => value !== null);
    return known.length ? `${label}: from ${figure(known[0])} to ${figure(known.at(-1))}.` : `${label}: not measured.`;
  }

  axes() {
    const { low, high, tick, first, last, x, y } = this.at;
    const levels = [...Array(Math.round((high - low) / tick) + 1).keys()].map((index) => low + index * tick);
    return [
      levels.map((level) => [
        s("path", { class: Math.abs(level) < tick / 1e6 ? "axis" : "rule", d: `M${LEFT} ${y(level)}H${this.width - RIGHT}` }),
        s("text", { class: "tick end", x: LEFT - 7, y: y(level), dy: "0.35em" }, figure(Number(level.toPrecision(6)))),
      ]),
      s("text", { class: "tick", x: LEFT, y: HEIGHT - 6 }, `step ${first}`),
      last > first ? s("text", { class: "tick end", x: this.width - RIGHT, y: HEIGHT - 6 }, String(last)) : null,
      this.step === null ? null : s("path", { class: "now", d: `M${x(this.step)} ${TOP}V${HEIGHT - BOTTOM}` }),
    ];
  }

  line({ style, steps, values }) {
    const { x, y } = this.at;
    // Joined over steps without a value: validation is measured every few steps.
    const known = values.flatMap((value, index) => (value === null ? [] : [`${x(steps[index])} ${y(value)}`]));
    const d = known.length ? `M${known.join("L")}` : null;
    const every = Math.ceil(values.length / MOST_MARKERS);
    const markers = values.map((value, index) => (value === null || index % every ? null : MARKERS[style](x(steps[index]), y(value))));
    return [s("path", { class: `way ${style}`, d }), markers];
  }

  stepAt(event) {
    const { first, last } = this.at;
    const share = (event.clientX - this.svg.getBoundingClientRect().left - LEFT) / Math.max(this.width - LEFT - RIGHT, 1);
    return Math.round(Math.min(Math.max(share, 0), 1) * (last - first)) + first;
  }

  point(event) {
    this.tell(this.stepAt(event));
  }

  /** Write the values of a step above the chart, the last ones without a step. */
  tell(step) {
    const parts = this.lines.map(({ style, steps, values }) => {
      const index = step === null ? values.findLastIndex((value) => value !== null) : steps.indexOf(step);
      const value = values[index];
      return h("span", { class: `value ${style}` }, value === undefined ? "–" : figure(value));
    });
    refill(this.readout, step === null ? null : h("span", { class: "soft" }, `step ${step} `), parts);
  }
}

/** Return the name of a metric for people. */
export function metricTitle(name) {
  return name.replaceAll("_", " ");
}
