/** Minesweeper's cells: closed, open with their counts, flags, the mine that was hit, the others at the end. */

import { refill, s } from "./dom.js";
import { CELL, badge, cellOf, chip } from "./geometry.js";

const MARGIN = 24;

/** Draws the rows of a Minesweeper board into `layer`. */
export class MinesweeperPieces {
  constructor() {
    this.layer = s("g");
    this.shown = "";
  }

  update({ rows, mines }) {
    const shown = JSON.stringify([rows, mines]);
    if (shown !== this.shown) refill(this.layer, indices(rows), cells(rows, mines));
    this.shown = shown;
    return [-MARGIN, -MARGIN, CELL * rows[0].length + MARGIN + 4, CELL * rows.length + MARGIN + 4];
  }

  summary({ rows }) {
    const all = rows.join("");
    const closed = [...all].filter((symbol) => ".F".includes(symbol)).length;
    const end = all.includes("*") ? ", a mine was hit" : "";
    return `Minesweeper board, ${rows.length} by ${rows[0].length}, ${closed} cells closed, ${all.split("F").length - 1} flags${end}`;
  }
}

function indices(rows) {
  const across = [...rows[0]].map((_, col) => s("text", { class: "index", x: CELL * (col + 0.5), y: -MARGIN / 2, dy: "0.35em" }, String(col)));
  const down = rows.map((_, row) => s("text", { class: "index", x: -MARGIN / 2, y: CELL * (row + 0.5), dy: "0.35em" }, String(row)));
  return [across, down];
}

function cells(rows, mines) {
  const isMine = new Set((mines ?? []).map(([row, col]) => `${row} ${col}`));
  return rows.flatMap((line, row) => [...line].map((symbol, col) => {
    const parts = cell(symbol, mines ? isMine.has(`${row} ${col}`) : null);
    return s("g", { transform: `translate(${CELL * col} ${CELL * row})` }, parts);
  }));
}

/** Return the parts of one cell; `isMine` is null as long as nobody may know. */
function cell(symbol, isMine) {
  if (symbol === "*") return [plate("hit"), mine("hit-mine")];
  if (symbol === "F") return [closed(), flag(), isMine === false ? s("path", { class: "wrong", d: "M10 10L38 38M38 10L10 38" }) : null];
  if (symbol === ".") return [closed(), isMine ? mine("mine") : null];
  const count = symbol === "0" ? null : s("text", { class: `count count-${symbol}`, x: CELL / 2, y: CELL / 2, dy: "0.35em" }, symbol);
  return [plate("open"), count];
}

function plate(name) {
  return s("rect", { class: name, x: 1, y: 1, width: CELL - 2, height: CELL - 2, rx: 5 });
}

function closed() {
  return [
    s("rect", { class: "closed-edge", x: 1.5, y: 2.5, width: CELL - 3, height: CELL - 3.5, rx: 6 }),
    s("rect", { class: "closed", x: 1.5, y: 1.5, width: CELL - 3, height: CELL - 6, rx: 6 }),
  ];
}

function flag() {
  return [s("path", { class: "pole", d: "M18 38V10M12 38h13" }), s("path", { class: "flag", d: "M18 10l18 8l-18 8z" })];
}

function mine(name) {
  return s("g", { class: name }, s("path", { d: "M24 10v28M10 24h28M14 14l20 20M34 14L14 34" }), s("circle", { cx: 24, cy: 24, r: 9 }), s("circle", { class: "glint", cx: 21, cy: 21, r: 2.5 }));
}

/** Draw the value of a reveal: the cost after it, in its cell. */
export function revealValue(rows, move) {
  const cell = cellOf(move.action);
  return cell && move.action.startsWith("reveal") ? chip(CELL * (cell[1] + 0.5), CELL * (cell[0] + 0.3), move, 10) : null;
}

/** Mark the cell that was opened or flagged; null for another action. */
export function cellMark(rows, action) {
  const cell = cellOf(action);
  return cell && s("rect", { class: "chosen-mark", x: CELL * cell[1] + 2, y: CELL * cell[0] + 2, width: CELL - 4, height: CELL - 4, rx: 6 });
}

/** Number the cells that a line opens. */
export function revealLine(rows, line) {
  return line.map((action, index) => {
    const cell = cellOf(action);
    return cell && badge(CELL * (cell[1] + 0.8), CELL * (cell[0] + 0.22), index + 1);
  });
}

/** Return what the solver is asked about a board; null while its mines are hidden. */
export function minefieldOf({ rows, mines }) {
  if (!mines) return null;
  const marked = (isMarked) => rows.map((line) => [...line].map((symbol) => (isMarked(symbol) ? "1" : "0")).join(""));
  return {
    mines, rows: rows.length, cols: rows[0].length,
    revealed: marked((symbol) => !".F".includes(symbol)), flags: marked((symbol) => symbol === "F"),
  };
}
