/** Reports and case studies: draws what their HTML describes, from data inside the file. */

import { createBoard } from "./board_svg.js";
import { Chart } from "./chart.js";
import { h, refill } from "./dom.js";
import { learnGames } from "./games.js";
import { Player } from "./player.js";
import { runCharts } from "./run_charts.js";
import { figure } from "./wording.js";

function inlined(id) {
  return JSON.parse(document.getElementById(id)?.textContent ?? "null");
}

function drawBoard(place) {
  const { game, ...board } = JSON.parse(place.dataset.board);
  const picture = createBoard(game, board);
  picture.update(board);
  place.replaceWith(picture.element);
}

function drawRun(run) {
  const names = Object.keys(run.columns);
  if (!names.length) return; // no step yet
  for (const { id, element } of runCharts(run)) refill(document.getElementById(`charts-${id}`), element);
  const text = (value) => (Array.isArray(value) ? value.map(figure).join(" ") : typeof value === "number" ? figure(value) : String(value ?? ""));
  refill(document.getElementById("every-figure"), h("table", { class: "numbers" },
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, run.columns.step.map((_, row) => h("tr", {}, names.map((name) => h("td", {}, text(run.columns[name][row]))))))));
}

/** Show the games of one section at a time: the one that the address names, else the first. */
function showGames({ episodes, facts }) {
  learnGames(facts);
  const sections = [...document.querySelectorAll(".games")];
  let shown = null;
  let players = [];
  const choose = () => {
    const named = sections.find(({ id }) => `#${id}` === location.hash);
    if (named) requestAnimationFrame(() => named.scrollIntoView());
    if (shown && (!named || named === shown)) return;
    shown = named ?? sections[0];
    for (const section of sections) section.hidden = section !== shown;
    for (const link of document.querySelectorAll(".picker a")) link.setAttribute("aria-current", String(link.hash === `#${shown.id}`));
    for (const player of players) player.close();
    players = [...shown.querySelectorAll("[data-episode]")].map((place) => {
      const player = new Player(episodes[place.dataset.episode], { name: place.previousElementSibling.textContent.trim() });
      refill(place, player.element);
      return player;
    });
  };
  addEventListener("hashchange", choose);
  choose();
}

document.querySelectorAll("[data-board]").forEach(drawBoard);
for (const place of document.querySelectorAll("[data-chart]")) refill(place, new Chart(JSON.parse(place.dataset.chart)).element);
const [run, games] = [inlined("run-data"), inlined("player-data")];
if (run) drawRun(run);
if (games?.episodes.length) showGames(games);
