/** Reports and case studies: draws what their HTML describes, from data inside the file. */

import { createBoard } from "./board_svg.js";
import { showOneCase } from "./cases.js";
import { Chart } from "./chart.js";
import { refill } from "./dom.js";
import { runCharts } from "./run_charts.js";
import { stepThrough } from "./stepping.js";

for (const place of document.querySelectorAll("[data-board]")) {
  const board = createBoard(place.dataset.game);
  board.update(JSON.parse(place.dataset.board));
  place.replaceWith(named(board.element));
}
for (const place of document.querySelectorAll("[data-chart]")) refill(place, new Chart(JSON.parse(place.dataset.chart)).element);

const data = document.getElementById("run-data");
if (data) {
  for (const { id, element } of runCharts(JSON.parse(data.textContent))) refill(document.getElementById(`charts-${id}`), element);
}
document.querySelectorAll("#game, .case").forEach(stepThrough);
showOneCase();

/** Name a board by a text instead of an element with an id, because it will be copied. */
function named(element) {
  const title = element.querySelector("title");
  if (title === null) return element;
  element.setAttribute("aria-label", title.textContent);
  for (const name of ["aria-labelledby", "aria-describedby"]) element.removeAttribute(name);
  for (const told of element.querySelectorAll("title, desc")) told.remove();
  return element;
}
