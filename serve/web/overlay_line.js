/** An optimal line over a board: where the player walks, which vehicle slides, which cell opens, in order. */

import { s } from "./dom.js";
import { CELL, STEPS, arrow, cellOf, playerOf, slideOf, vehiclesOf } from "./geometry.js";

/** Units by which a step keeps to the right of its way, so that going there and back are two lines. */
const LANE = 6;
const MOST_SLIDES = 12;

/** Return the line as a group; null for a game without one. */
export function lineOverlay(game, rows, line) {
  const drawer = { sokoban: walk, rush_hour: slides, minesweeper: order }[game];
  return drawer && line.length ? s("g", { class: "line" }, drawer(rows, line)) : null;
}

function walk(rows, line) {
  let [row, col] = playerOf(rows);
  const points = [];
  for (const action of line) {
    const [down, right] = STEPS[action];
    const [x, y] = [CELL * (col + 0.5) - LANE * down, CELL * (row + 0.5) + LANE * right];
    points.push([[x, y], [x + CELL * right, y + CELL * down]]);
    [row, col] = [row + down, col + right];
  }
  const way = points.map(([from, to], index) => `${index ? "L" : "M"}${from}L${to}`).join("");
  const heads = points.map(([from, to], index) => {
    const middle = [(from[0] + 2 * to[0]) / 3, (from[1] + 2 * to[1]) / 3];
    return arrow(from, middle, index ? "head" : "head first");
  });
  return [s("path", { class: "line-way", d: way }), heads, s("circle", { class: "line-end", cx: points.at(-1)[1][0], cy: points.at(-1)[1][1], r: 4.5 })];
}

function slides(rows, line) {
  const vehicles = new Map(vehiclesOf(rows).map((vehicle) => [vehicle.letter, { ...vehicle }]));
  const used = new Map(); // place of a badge -> how many are there
  return line.slice(0, MOST_SLIDES).map((action, index) => {
    const { letter, sign, count } = slideOf(action);
    const vehicle = vehicles.get(letter);
    const center = () => [CELL * (vehicle.col + (vehicle.isVertical ? 0.5 : vehicle.length / 2)), CELL * (vehicle.row + (vehicle.isVertical ? vehicle.length / 2 : 0.5))];
    const from = center();
    if (vehicle.isVertical) vehicle.row += sign * count;
    else vehicle.col += sign * count;
    const to = center();
    const number = used.get(String(from)) ?? 0;
    used.set(String(from), number + 1);
    const lane = (number ? -1 : 1) * 12;
    const shifted = ([x, y]) => (vehicle.isVertical ? [x + lane, y] : [x, y + lane]);
    return [arrow(shifted(from), shifted(to), index ? "head" : "head first"), badge(...shifted(from), index + 1)];
  });
}

function order(rows, line) {
  return line.map((action, index) => {
    const cell = cellOf(action);
    return cell && badge(CELL * (cell[1] + 0.8), CELL * (cell[0] + 0.22), index + 1);
  });
}

function badge(x, y, number) {
  return s("g", { class: "badge" }, s("circle", { cx: x, cy: y, r: 8.5 }), s("text", { x, y, dy: "0.35em" }, String(number)));
}
