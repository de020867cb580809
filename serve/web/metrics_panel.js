/** The chosen metrics of two runs, one chart each. */

import { Chart } from "./chart.js";
import { h, recalled, refill, remember } from "./dom.js";
import { figureOf } from "./run_charts.js";

const FIRST_CHOICE = ["success", "validation_success", "lost_fraction", "invalid_fraction", "shifted_advantage_mean", "turns_mean", "entropy", "tokens_per_s"];

/** Return an element with charts of `tables`: `[{style, name, columns, metrics}, …]` as the interface gives them. */
export function metricsPanel(tables) {
  if (tables.every(({ columns }) => !columns.step?.length)) return h("p", { class: "soft" }, "No step is finished yet.");
  const facts = Object.assign({}, ...tables.map(({ metrics }) => metrics));
  const names = [...new Set(tables.flatMap(({ columns }) => Object.keys(columns)))].filter((name) => name !== "step");
  const chosen = new Set(recalled("metrics", FIRST_CHOICE).filter((name) => names.includes(name)));
  const grid = h("div", { class: "charts" });
  const draw = () => refill(grid, names.filter((name) => chosen.has(name)).map((name) => chartOf(tables, name, facts[name])));
  const count = h("span", { class: "soft" });
  const tell = () => { count.textContent = `${chosen.size} of ${names.length}`; };
  const flip = (name, isOn) => {
    if (isOn) chosen.add(name);
    else chosen.delete(name);
    remember("metrics", [...chosen]);
    tell();
    draw();
  };
  const boxes = names.map((name) => h("label", { title: facts[name]?.text },
    h("input", { type: "checkbox", checked: chosen.has(name), onchange: (event) => flip(name, event.target.checked) }), h("span", {}, facts[name]?.label ?? name)));
  const picker = h("details", { class: "fold picker" }, h("summary", {}, "Choose metrics ", count), h("fieldset", { class: "checks" }, h("legend", { class: "unseen" }, "Metrics"), boxes));
  tell();
  draw();
  return h("div", {}, picker, grid);
}

function chartOf(tables, metric, { label, unit, text } = { label: metric, unit: "", text: "" }) {
  const lines = tables.filter(({ columns }) => columns[metric]).map(({ style, name, columns }) => ({ style, name, points: columns.step.map((step, row) => [step, columns[metric][row]]) }));
  return figureOf(label, text, new Chart({ label, x: "step", unit, lines }).element);
}
