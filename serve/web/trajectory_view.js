/** A stored trajectory in the player, with its place in the run. */

import { getJson } from "./api.js";
import { h, refill } from "./dom.js";
import { optimalLine } from "./optimal_line.js";
import { Player } from "./player.js";
import { runTitle } from "./runs.js";
import { factsOf } from "./games.js";
import { endWords } from "./wording.js";

/** Show a trajectory in `place`; the turn that is looked at stands in the address. */
export async function showTrajectory(place, { run, step, group, episode, query }) {
  const attempt = query.get("attempt") ?? "";
  const shown = await getJson("api/run/trajectory", { run, step, group, episode, attempt });
  const stepHref = `#/run/${encodeURIComponent(run)}/step/${step}`;
  const here = `${stepHref}/group/${group}/episode/${episode}`;
  const onSeek = (position) => {
    const address = new URLSearchParams({ ...(attempt && { attempt }), turn: position + 1 });
    history.replaceState(null, "", `${here}?${address}`);
  };
  const turn = query.get("turn");
  const player = new Player(shown, { position: turn === null ? null : Math.max(Number(turn) - 1, 0), onSeek, optimalLine });
  refill(place,
    h("div", { class: "heading" },
      h("h1", {}, `Group ${group}, episode ${episode}`, h("span", { class: "soft" }, ` of step ${step}, ${runTitle(run)}`)),
      h("div", { class: "heading-links" },
        h("a", { class: "button", href: `${stepHref}?group=${group}` }, "The group"), h("a", { class: "button", href: stepHref }, "The step"))),
    h("p", { class: `summary ${shown.end_reason === "solved" ? "solved" : "failed"}` }, endWords(shown)),
    player.element,
    shown.turns.some(({ advantages }) => advantages) ? advantageTable(shown) : null);
  return () => player.close();
}

/** All advantages of the trajectory, one row a turn. */
function advantageTable({ turns, game }) {
  const names = Object.keys(turns.find(({ advantages }) => advantages).advantages);
  const number = (value) => (typeof value === "number" ? h("td", { class: value < 0 ? "minus" : null }, value.toFixed(3).replace("-", "−")) : h("td", {}, "–"));
  return h("details", { class: "fold card" }, h("summary", {}, "Advantages of all turns"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Advantages of all turns" }, h("table", { class: "numbers" },
      h("thead", {}, h("tr", {}, ["Turn", "Action", `${factsOf(game).letter} before`, ...names].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, turns.map((turn, index) => h("tr", {},
        h("th", { scope: "row" }, String(index + 1)), h("td", {}, turn.action || "–"), h("td", {}, String(turn.cost_before ?? "–")),
        names.map((name) => number(turn.advantages?.[name]))))))));
}
