/** The page: which view an address stands for, and the colours. */

import { getJson } from "./api.js";
import { showCompare } from "./compare.js";
import { h, recalled, refill, remember } from "./dom.js";
import { showEpisode } from "./episode_view.js";
import { errorBox } from "./forms.js";
import { showPlay } from "./play.js";
import { showRun } from "./run_view.js";
import { showRuns } from "./runs.js";
import { showTrajectory } from "./trajectory_view.js";

const NUMBER = "(\\d+)";
const NAME = "([^/]+)";

/** Pattern of an address behind `#/`, the names of its parts, the view, its title. */
const ROUTES = [
  route("", [], showPlay, "Play"),
  route("play", [], showPlay, "Play"),
  route(`play/${NAME}`, ["game"], showPlay, "Play"),
  route(`episode/${NAME}`, ["id"], showEpisode, "Episode"),
  route("runs", [], showRuns, "Runs"),
  route(`run/${NAME}`, ["run"], showRun, "Run"),
  route(`run/${NAME}/step/${NUMBER}`, ["run", "step"], showRun, "Run"),
  route(`run/${NAME}/step/${NUMBER}/group/${NUMBER}/episode/${NUMBER}`, ["run", "step", "group", "episode"], showTrajectory, "Trajectory"),
  route(`compare/${NAME}/${NAME}`, ["first", "second"], showCompare, "Compare"),
];

function route(pattern, names, show, title) {
  return { pattern: new RegExp(`^${pattern}$`), names, show, title };
}

let leave = () => {};
let shownAt = null;

async function navigate() {
  if (location.hash === "#main") return; // the link that skips the header
  const here = (shownAt = Symbol("the newest address"));
  leave();
  leave = () => {};
  const main = document.getElementById("main");
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const found = ROUTES.map((entry) => ({ entry, match: entry.pattern.exec(path) })).find(({ match }) => match);
  markLink(path);
  if (!found) {
    refill(main, h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "#/play" }, "To the games")));
    return;
  }
  const { entry, match } = found;
  document.title = `${entry.title} · cast_ray`;
  const parts = Object.fromEntries(entry.names.map((name, index) => [name, decodeURIComponent(match[index + 1])]));
  const place = h("div", { class: "view" }, h("p", { class: "soft loading" }, "Loading …"));
  refill(main, place);
  try {
    const end = await entry.show(place, { ...parts, query: new URLSearchParams(query ?? "") });
    if (shownAt === here) leave = end;
    else end();
  } catch (error) {
    if (shownAt === here) refill(place, h("h1", {}, entry.title), errorBox(error));
  }
}

function markLink(path) {
  const section = /^(runs?|compare)\b/.test(path) ? "#/runs" : "#/play";
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.getAttribute("href") === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function chooseColours() {
  const button = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const chosen = recalled("theme", null);
    const isDark = chosen ? chosen === "dark" : prefersDark.matches;
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(isDark));
  };
  button.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    const isSystems = (next === "dark") === prefersDark.matches;
    remember("theme", isSystems ? null : next);
    show();
  });
  prefersDark.addEventListener("change", show);
  show();
}

/** Hide what this server does not have. */
async function fitToServer() {
  try {
    const about = await getJson("api/about");
    document.getElementById("runs-link").hidden = !about.runs;
  } catch {
    // The view says what is wrong; links stay.
  }
}

chooseColours();
addEventListener("hashchange", navigate);
navigate().then(fitToServer);
