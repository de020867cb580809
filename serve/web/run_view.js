/** One training run: its curves, and the trajectories of a step. */

import { getJson } from "./api.js";
import { h, refill } from "./dom.js";
import { gameTitle } from "./episode_view.js";
import { runCharts } from "./run_charts.js";
import { modelWords, runTitle, startedWords, stepsWords, successWords } from "./runs.js";
import { StepBrowser } from "./step_browser.js";

/** Show a run in `place`, with the trajectories of `step` or of its last stored one. */
export async function showRun(place, { run: name, step, query }) {
  const [run, charted] = await Promise.all([getJson("api/run", { run: name }), getJson("api/run/charts", { run: name })]);
  const stored = run.trajectory_steps;
  const browser = stored.length ? new StepBrowser(name, stored, query) : null;
  const sections = runCharts(charted, { onStep: browser && ((to) => toStep(nearest(stored, to))) });
  const toStep = async (to) => {
    for (const { charts } of sections) for (const chart of charts) chart.setStep(to);
    await browser.show(to);
  };
  refill(place, heading(run), facts(run),
    sections.length ? sections.map(chartSection) : h("p", { class: "soft" }, "No step is finished yet."),
    h("section", { "aria-labelledby": "trajectories" }, h("h2", { id: "trajectories" }, "Trajectories"),
      browser ? browser.element : h("p", { class: "soft" }, "This run has no stored trajectories.")),
    settings(run.config));
  if (browser) {
    browser.onStep = toStep;
    await toStep(step === undefined ? stored.at(-1) : Number(step));
    if (step !== undefined) browser.element.scrollIntoView();
  }
  return () => {};
}

/** The first section is open, the others unfold. */
function chartSection({ title, element }, place) {
  return place ? h("details", { class: "fold section" }, h("summary", {}, title), element) : h("section", {}, h("h2", {}, title), element);
}

function nearest(steps, wanted) {
  return steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best));
}

function heading({ name }) {
  return h("div", { class: "heading" },
    h("h1", {}, runTitle(name)), h("div", { class: "heading-links" }, h("a", { class: "button", href: "#/runs" }, "All runs")));
}

function facts(run) {
  const pairs = [
    ["Game", run.game ? `${gameTitle(run.game)}${run.tier ? `, ${run.tier}` : ""}` : "–"],
    ["Method", run.algorithm ?? "–"],
    ["Model", modelWords(run)],
    ["Steps", `${stepsWords(run)}${run.finished ? "" : ", not finished"}`],
    ["Held-out boards solved", successWords(run)],
    ["Started", run.started ? startedWords(run.started) : "–"],
  ];
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function settings(config) {
  return h("details", { class: "fold card config" }, h("summary", {}, "Configuration"),
    h("table", { class: "settings" }, h("tbody", {}, flatSettings(config).map(([name, value]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))));
}

/** Return `[[name, text], …]` of a nested configuration: `rollout.group_size`, "8". */
export function flatSettings(config, prefix = "") {
  return Object.entries(config).flatMap(([name, value]) => {
    const isNested = value !== null && typeof value === "object" && !Array.isArray(value);
    return isNested ? flatSettings(value, `${prefix}${name}.`) : [[`${prefix}${name}`, typeof value === "string" ? value || "(empty)" : JSON.stringify(value)]];
  });
}
