/** The trajectories of one step of a run: its groups, filters, order, and a link to each. */

import { getJson } from "./api.js";
import { createBoard } from "./board_svg.js";
import { freshId, h, refill } from "./dom.js";
import { orError } from "./forms.js";
import { END_REASONS, costText, figure } from "./wording.js";

const PAGE = 50;
/** Most trajectories that the interface gives at once. */
const MOST = 1000;
/** The table's columns, with the API's sort key where there is one (largest first; "" = as played, null = not sortable). */
const COLUMNS = { Trajectory: "", End: null, Turns: "turns", Invalid: null, "No effect": null, "Largest regret": "regret", "Cost first → last": null, Advantage: "advantage" };

/** Browses the steps in `steps`; `onStep(step)` when another one is chosen. */
export class StepBrowser {
  constructor(run, steps, query) {
    Object.assign(this, { run, steps, onStep: () => {} });
    this.group = query.get("group");
    this.filters = { outcome: query.get("outcome") ?? "", invalid: query.get("invalid") === "true", min_regret: query.get("min_regret") ?? "", sort: query.get("sort") ?? "" };
    this.picker = h("select", { id: freshId("step"), onchange: () => this.onStep(Number(this.picker.value)) }, steps.map((step) => h("option", { value: step }, String(step))));
    this.groups = h("div", { class: "groups", role: "group", "aria-label": "Groups" });
    this.table = h("div", { class: "card table-card" });
    this.element = h("div", { class: "step-browser" }, this.filterForm(), this.groups, this.table);
  }

  filterForm() {
    const labelled = (label, input) => {
      input.id ||= freshId("filter");
      return h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    };
    const changed = (name, read) => (event) => {
      this.filters[name] = read(event.target);
      this.load();
    };
    const options = (names, chosen) => Object.entries(names).map(([value, text]) => h("option", { value, selected: value === chosen }, text));
    const { outcome, invalid, min_regret: least } = this.filters;
    return h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      labelled("Step", this.picker),
      labelled("Outcome", h("select", { onchange: changed("outcome", ({ value }) => value) }, options({ "": "any", ...END_REASONS }, outcome))),
      labelled("Regret at least", h("input", { type: "number", min: 0, step: 1, value: least, placeholder: "any", onchange: changed("min_regret", ({ value }) => value) })),
      h("label", { class: "switch" }, h("input", { type: "checkbox", checked: invalid, onchange: changed("invalid", ({ checked }) => checked) }), h("span", {}, "with invalid actions")));
  }

  /** Show a step; a filter by group ends with its step. */
  async show(step) {
    if (this.step !== undefined && step !== this.step) this.group = null;
    this.step = step;
    this.picker.value = step;
    await this.load();
  }

  async load() {
    history.replaceState(null, "", this.address());
    await orError(this.table, async () => {
      this.found = await this.page(0);
      this.draw();
    });
  }

  page(offset) {
    const { invalid, ...rest } = this.filters;
    const isWhole = this.group !== null; // the interface does not filter by group: all of a step, then its own
    return getJson("api/run/step", { run: this.run, step: this.step, ...rest, invalid: invalid ? "true" : "", limit: isWhole ? MOST : PAGE, offset: isWhole ? "" : offset || "" });
  }

  address() {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...this.filters, group: this.group })) if (value) query.set(name, value);
    const text = query.toString();
    return `#/run/${encodeURIComponent(this.run)}/step/${this.step}${text ? `?${text}` : ""}`;
  }

  draw() {
    const { groups, trajectories, total } = this.found;
    refill(this.groups, groups.map((group) => this.groupButton(group)));
    const shown = this.group === null ? trajectories : trajectories.filter(({ group }) => String(group) === this.group);
    const isMore = this.group === null && trajectories.length < total;
    const words = `${this.group === null ? total : shown.length} trajector${(this.group === null ? total : shown.length) === 1 ? "y" : "ies"}${this.group === null ? "" : ` of group ${this.group}`}`;
    refill(this.table, h("p", { class: "soft count", role: "status" }, words), shown.length ? this.rows(shown) : null,
      isMore ? h("button", { type: "button", onclick: () => orError(this.table, () => this.more()) }, "Show more") : null);
  }

  async more() {
    const next = await this.page(this.found.trajectories.length);
    this.found.trajectories.push(...next.trajectories);
    this.draw();
  }

  groupButton({ group, solved, episodes, game, board }) {
    const isChosen = String(group) === this.group;
    const choose = () => {
      this.group = isChosen ? null : String(group);
      this.load();
    };
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: { width: `${(100 * solved) / Math.max(episodes, 1)}%` } }));
    const picture = board.is_text ? null : createBoard(game, board);
    picture?.update(board);
    return h("button", { type: "button", class: "group", "aria-pressed": String(isChosen), "aria-label": `Group ${group}: ${solved} of ${episodes} solved`, onclick: choose },
      picture?.element, h("span", {}, `Group ${group}`), bar, h("small", {}, `${solved}/${episodes}`));
  }

  rows(trajectories) {
    return h("table", { class: "trajectories" },
      h("thead", {}, h("tr", {}, Object.entries(COLUMNS).map((column) => this.heading(...column)))),
      h("tbody", {}, trajectories.map((one) => this.row(one))));
  }

  heading(name, order) {
    if (order === null) return h("th", { scope: "col" }, name);
    const isChosen = order === this.filters.sort;
    const choose = () => {
      this.filters.sort = order;
      this.load();
    };
    const direction = order ? "descending" : "ascending";
    return h("th", { scope: "col", "aria-sort": isChosen ? direction : "none" }, h("button", { type: "button", class: "sort", onclick: choose }, `${name} ${isChosen ? (order ? "▼" : "▲") : ""}`));
  }

  row(one) {
    const game = this.found.groups.find(({ group }) => group === one.group)?.game ?? "";
    const attempt = one.attempt ? `?attempt=${one.attempt}` : "";
    const href = `#/run/${encodeURIComponent(this.run)}/step/${this.step}/group/${one.group}/episode/${one.episode}${attempt}`;
    const cell = (label, ...text) => h("td", { "data-label": label }, text);
    return h("tr", {},
      h("th", { scope: "row" }, h("a", { href }, `Group ${one.group}, episode ${one.episode}`)),
      cell("End", h("span", { class: `grade ${one.end_reason === "solved" ? "best" : one.end_reason === "deadlock" || one.end_reason === "lost" ? "dead" : "none"}` }, END_REASONS[one.end_reason] ?? one.end_reason)),
      cell("Turns", String(one.turns)), cell("Invalid", String(one.invalid)), cell("No effect", String(one.ineffective)),
      cell("Regret", one.max_regret === null ? "–" : String(one.max_regret)),
      cell("Cost", `${costText(one.cost_start, game)} → ${costText(one.cost_end, game)}`),
      cell("Advantage", figure(one.outcome_advantage)));
  }
}
