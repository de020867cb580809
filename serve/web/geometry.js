/** Where things are: cells, players, vehicles, and the places that actions name. */

import { s } from "./dom.js";

/** Side of a cell in the drawings' own units. */
export const CELL = 48;
export const STEPS = { Up: [-1, 0], Down: [1, 0], Left: [0, -1], Right: [0, 1] };

/** Return `[row, col]` of Sokoban's player. */
export function playerOf(rows) {
  const row = rows.findIndex((line) => /[PS]/.test(line));
  return [row, rows[row].search(/[PS]/)];
}

/** Return `{letter, sign, count}` of a slide such as `A+2`; null for another text. */
export function slideOf(action) {
  const match = /^([A-Z])([+-])(\d+)$/.exec(action);
  return match && { letter: match[1], sign: match[2] === "+" ? 1 : -1, count: Number(match[3]) };
}

/** Return `[row, col]` of a reveal or flag; null for another text. */
export function cellOf(action) {
  const match = /^(?:reveal|flag) (\d+) (\d+)$/.exec(action);
  return match && [Number(match[1]), Number(match[2])];
}

/** Return `[{letter, row, col, length, isVertical}, …]` by letter; row and column of the first cell. */
export function vehiclesOf(rows) {
  const found = new Map();
  rows.forEach((line, row) => {
    [...line].forEach((letter, col) => {
      if (!/[A-Z]/.test(letter)) return;
      const known = found.get(letter);
      if (!known) found.set(letter, { letter, row, col, length: 1, isVertical: false });
      else Object.assign(known, { length: known.length + 1, isVertical: row > known.row });
    });
  });
  return [...found.values()].sort((a, b) => (a.letter < b.letter ? -1 : 1));
}

/** Return how far a vehicle can slide: `{back, ahead}` cells. */
export function roomOf(rows, { row, col, length, isVertical }) {
  const isFree = (offset) => {
    const [r, c] = isVertical ? [row + offset, col] : [row, col + offset];
    return r >= 0 && c >= 0 && r < rows.length && c < rows[r].length && ".o".includes(rows[r][c]);
  };
  let [back, ahead] = [0, 0];
  while (isFree(-back - 1)) back += 1;
  while (isFree(length + ahead)) ahead += 1;
  return { back, ahead };
}

/** Return an arrow between two points. */
export function arrow([x0, y0], [x1, y1], name) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  const [ux, uy] = [(x1 - x0) / length, (y1 - y0) / length];
  const wing = (side) => `${x1 - 7 * ux - side * 6 * uy} ${y1 - 7 * uy + side * 6 * ux}`;
  return s("path", { class: `arrow ${name}`, d: `M${x0} ${y0}L${x1} ${y1}M${wing(1)}L${x1} ${y1}L${wing(-1)}` });
}

/** Return a disc with the cost after a move; its shape says what its colour says. */
export function chip(x, y, move, r = 12.5) {
  const text = { dead: "✕", unknown: "?" }[move.grade] ?? String(move.cost);
  const ring = move.grade === "best" ? s("circle", { class: "ring", cx: x, cy: y, r: r + 3 }) : null;
  const disc = move.grade === "dead"
    ? s("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, rx: 4 })
    : s("circle", { cx: x, cy: y, r });
  return s("g", { class: `chip ${move.grade}` }, ring, disc, s("text", { x, y, dy: "0.35em", class: r < 12 ? "small" : "" }, text));
}

/** Return a numbered disc: the place of an action in a line. */
export function badge(x, y, number) {
  return s("g", { class: "badge" }, s("circle", { cx: x, cy: y, r: 8.5 }), s("text", { x, y, dy: "0.35em" }, String(number)));
}
