/** Curves of the metrics that somebody chose, of one run or of two. */

import { MetricChart, metricTitle } from "./chart.js";
import { h, recalled, refill, remember } from "./dom.js";

const FIRST_CHOICE = ["success", "validation_success", "lost_fraction", "invalid_fraction", "shifted_advantage_mean", "turns_mean", "entropy", "tokens_per_s"];

/**
 * Return `{element, setStep}`.
 *
 * `tables` are `[{style, label, columns}, …]`, columns as the interface gives them: name to values.
 */
export function metricsPanel(tables, { onStep = null } = {}) {
  const names = [...new Set(tables.flatMap(({ columns }) => Object.keys(columns)))].filter((name) => name !== "step");
  const chosen = new Set(recalled("metrics", FIRST_CHOICE).filter((name) => names.includes(name)));
  const grid = h("div", { class: "charts" });
  let step = null;
  const draw = () => refill(grid, names.filter((name) => chosen.has(name)).map((name) => new MetricChart(name, linesOf(tables, name), { step, onStep }).element));
  const count = h("span", { class: "soft" });
  const tell = () => { count.textContent = `${chosen.size} of ${names.length}`; };
  const flip = (name, isOn) => {
    if (isOn) chosen.add(name);
    else chosen.delete(name);
    remember("metrics", [...chosen]);
    tell();
    draw();
  };
  const boxes = names.map((name) => h("label", {},
    h("input", { type: "checkbox", checked: chosen.has(name), onchange: (event) => flip(name, event.target.checked) }), h("span", {}, metricTitle(name))));
  const picker = h("details", { class: "fold picker" }, h("summary", {}, "Choose metrics ", count), h("fieldset", { class: "checks" }, h("legend", { class: "unseen" }, "Metrics"), boxes));
  tell();
  draw();
  if (tables.every(({ columns }) => !columns.step?.length)) return { element: h("p", { class: "soft" }, "No step is finished yet."), setStep: () => {} };
  return { element: h("div", {}, picker, grid), setStep: (to) => { step = to; draw(); } };
}

function linesOf(tables, name) {
  return tables.filter(({ columns }) => columns[name]).map(({ style, label, columns }) => ({ style, label, steps: columns.step, values: columns[name] }));
}
