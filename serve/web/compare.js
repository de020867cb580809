/** Two runs side by side: their curves over each other, and where their configurations differ. */

import { getJson } from "./api.js";
import { h, refill } from "./dom.js";
import { metricsPanel } from "./metrics_panel.js";
import { flatSettings } from "./run_view.js";
import { runTitle, successWords } from "./runs.js";

/** Show the comparison of two runs in `place`. */
export async function showCompare(place, { first, second }) {
  const names = [first, second];
  const runs = await Promise.all(names.map((run) => getJson("api/run", { run })));
  const metrics = await Promise.all(names.map((run) => getJson("api/run/metrics", { run })));
  const styles = ["a", "b"];
  const tables = runs.map((run, index) => ({ style: styles[index], name: runTitle(run.name), ...metrics[index] }));
  refill(place,
    h("div", { class: "heading" }, h("h1", {}, "Two runs"), h("div", { class: "heading-links" }, h("a", { class: "button", href: "#/runs" }, "All runs"))),
    h("ul", { class: "legend" }, runs.map((run, index) => h("li", {},
      h("span", { class: `key ${styles[index]}`, "aria-hidden": "true" }),
      h("a", { href: `#/run/${encodeURIComponent(run.name)}` }, runTitle(run.name)), h("span", { class: "soft" }, index ? " dashed, squares" : " solid, circles"), " ", successWords(run)))),
    h("section", { "aria-labelledby": "curves" }, h("h2", { id: "curves" }, "Curves"), metricsPanel(tables)),
    h("section", { "aria-labelledby": "differences" }, h("h2", { id: "differences" }, "Differences in configuration"), differences(runs)));
  return () => {};
}

function differences([first, second]) {
  const [one, other] = [first, second].map((run) => new Map(flatSettings(run.config)));
  const names = [...new Set([...one.keys(), ...other.keys()])].filter((name) => one.get(name) !== other.get(name));
  if (!names.length) return h("p", { class: "soft" }, "Both runs have the same configuration.");
  return h("div", { class: "card table-card" }, h("table", { class: "settings" },
    h("thead", {}, h("tr", {}, ["Setting", runTitle(first.name), runTitle(second.name)].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, one.get(name) ?? "–"), h("td", {}, other.get(name) ?? "–"))))));
}
