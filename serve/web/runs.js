/** The runs that the server shows: a table, from which one is opened or two are compared. */

import { getJson } from "./api.js";
import { h, refill } from "./dom.js";
import { gameTitle } from "./episode_view.js";
import { percent } from "./wording.js";

/** Show the table of runs in `place`. */
export async function showRuns(place) {
  const { runs } = await getJson("api/runs");
  const heading = h("div", { class: "heading" }, h("h1", {}, "Training runs"));
  if (!runs.length) {
    refill(place, heading, h("div", { class: "card" }, h("p", {}, "This directory holds no training run yet. Train one here, or look at recorded ones:"),
      h("pre", {}, "cast-ray train run_dir=runs/first\ncast-ray view --demo"), h("p", {}, "Then reload this page. You can already ", h("a", { href: "#/play" }, "play the games"), ".")));
    return () => {};
  }
  const chosen = new Set();
  const compare = h("a", { class: "button", role: "link", "aria-disabled": "true" }, "Compare two");
  const choose = (name, isOn) => {
    if (isOn) chosen.add(name);
    else chosen.delete(name);
    const isPair = chosen.size === 2;
    compare.textContent = isPair ? "Compare these two" : `Compare two (${chosen.size} chosen)`;
    compare.setAttribute("aria-disabled", String(!isPair));
    if (isPair) compare.href = `#/compare/${[...chosen].map(encodeURIComponent).join("/")}`;
    else compare.removeAttribute("href");
  };
  heading.append(h("div", { class: "heading-links" }, compare));
  const columns = ["Compare", "Run", "Game", "Method", "Steps", "Success before → after", "Started"];
  refill(place, heading, h("div", { class: "card table-card" }, h("table", { class: "runs" },
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, runs.map((run) => runRow(run, choose))))));
  return () => {};
}

function runRow(run, choose) {
  if (run.problem) {
    return h("tr", {}, h("td", {}), h("th", { scope: "row" }, runTitle(run.name)), h("td", { colspan: 5, class: "minus" }, run.problem));
  }
  return h("tr", {},
    h("td", { "data-label": "Compare" }, h("input", { type: "checkbox", "aria-label": `Compare ${runTitle(run.name)}`, onchange: (event) => choose(run.name, event.target.checked) })),
    h("th", { scope: "row" }, h("a", { href: `#/run/${encodeURIComponent(run.name)}` }, runTitle(run.name)), run.finished ? null : h("span", { class: "tag" }, "not finished")),
    h("td", { "data-label": "Game" }, run.game ? gameTitle(run.game) : "–", run.tier ? h("span", { class: "soft" }, ` ${run.tier}`) : null),
    h("td", { "data-label": "Method" }, run.algorithm ?? "–", h("span", { class: "soft" }, ` ${modelWords(run)}`)),
    h("td", { "data-label": "Steps" }, stepsWords(run)),
    h("td", { "data-label": "Success" }, successWords(run)),
    h("td", { "data-label": "Started" }, run.started ? h("time", { datetime: run.started }, startedWords(run.started)) : "–"));
}

/** Return a run's name for people: a root that is a run itself has none. */
export function runTitle(name) {
  return name === "." ? "this run" : name;
}

/** Return the model that a run began with. */
export function modelWords({ model }) {
  return model?.split("/").at(-1) ?? "small policy";
}

/** Return the steps that are done, and of how many. */
export function stepsWords({ steps, planned_steps: planned }) {
  return planned === undefined || steps === planned ? String(steps) : `${steps} of ${planned}`;
}

/** Return success before and after training on held-out boards. */
export function successWords({ before, after }) {
  if (!before && !after) return h("span", { class: "soft" }, "not measured");
  const one = (rate) => (rate ? h("span", { title: `95% interval ${percent(rate.low)} to ${percent(rate.high)}, ${rate.n} games` }, percent(rate.success)) : "–");
  return h("span", { class: "success" }, one(before), " → ", h("b", {}, one(after)));
}

export function startedWords(iso) {
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
