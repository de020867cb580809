/** What the solver says of a board, drawn over it: values of moves, the optimal line, mine heat. */

import { h, recalled, refill, remember, s } from "./dom.js";
import { CELL, STEPS, arrow, cellOf, playerOf, slideOf, vehiclesOf } from "./geometry.js";
import { lineOverlay } from "./overlay_line.js";
import { gradedMoves, percent } from "./wording.js";

/** Draw over a board what is wanted: `kinds` holds "values", "line", "mines"; `chosen` is the turn's action. */
export function drawOverlay(board, analysis, { kinds, chosen }) {
  if (!board.overlay) return;
  const rows = board.board.rows;
  refill(
    board.overlay,
    kinds.has("mines") && analysis?.mines ? mineHeat(analysis.mines, analysis.best) : null,
    chosen ? chosenMark(board.game, rows, chosen) : null,
    kinds.has("line") && analysis?.line ? lineOverlay(board.game, rows, analysis.line) : null,
    kinds.has("values") ? moveValues(board.game, rows, gradedMoves(analysis, board.game)) : null,
  );
}

function moveValues(game, rows, moves) {
  const drawer = { sokoban: sokobanValue, rush_hour: rushHourValue, minesweeper: minesweeperValue }[game];
  // The best last, so that nothing covers it.
  return moves.sort((a, b) => (a.grade === "best") - (b.grade === "best")).map((move) => drawer(rows, move));
}

function sokobanValue(rows, move) {
  const [row, col] = playerOf(rows);
  const [down, right] = STEPS[move.action];
  const [x, y] = [CELL * (col + 0.5), CELL * (row + 0.5)];
  const at = (far) => [x + CELL * far * right, y + CELL * far * down];
  return [arrow(at(0.34), at(0.68), move.grade), chip(...at(1), move)];
}

function rushHourValue(rows, move) {
  const { letter, sign, count } = slideOf(move.action);
  const { row, col, length, isVertical } = vehiclesOf(rows).find((vehicle) => vehicle.letter === letter);
  const front = (sign > 0 ? length - 1 : 0) + sign * count;
  // Kept to the side from which the vehicle comes: four vehicles can aim at one cell.
  const [along, across] = [front + 0.5 - 0.3 * sign, 0.5];
  const [x, y] = isVertical ? [col + across, row + along] : [col + along, row + across];
  const back = isVertical ? [0, -sign * 0.26] : [-sign * 0.26, 0];
  const [cx, cy] = [CELL * x, CELL * y];
  const tail = [cx + 0.8 * CELL * back[0], cy + 0.8 * CELL * back[1]];
  return [count === 1 ? s("path", { class: `way ${move.grade}`, d: `M${tail}L${cx} ${cy}` }) : null, chip(cx, cy, move, 9.5)];
}

function minesweeperValue(rows, move) {
  const cell = cellOf(move.action);
  return cell && move.action.startsWith("reveal") ? chip(CELL * (cell[1] + 0.5), CELL * (cell[0] + 0.3), move, 10) : null;
}

/** Return a disc with the cost after a move; its shape says what its colour says. */
function chip(x, y, move, r = 12.5) {
  const text = { dead: "✕", unknown: "?" }[move.grade] ?? String(move.cost);
  const ring = move.grade === "best" ? s("circle", { class: "ring", cx: x, cy: y, r: r + 3 }) : null;
  const disc = move.grade === "dead"
    ? s("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, rx: 4 })
    : s("circle", { cx: x, cy: y, r });
  return s("g", { class: `chip ${move.grade}` }, ring, disc, s("text", { x, y, dy: "0.35em", class: r < 12 ? "small" : "" }, text));
}

function mineHeat(mines, best) {
  const target = best ? cellOf(best) : null;
  return mines.flatMap((line, row) => line.map((share, col) => {
    if (share === null) return null;
    const isBest = target && target[0] === row && target[1] === col;
    const [x, y] = [CELL * col, CELL * row];
    const heat = s("rect", { class: "heat", x: x + 1.5, y: y + 1.5, width: CELL - 3, height: CELL - 6, rx: 6 });
    heat.style.setProperty("--share", `${Math.round(100 * share)}%`);
    return s("g", {}, heat,
      isBest ? s("rect", { class: "heat-best", x: x + 3, y: y + 3, width: CELL - 6, height: CELL - 9, rx: 5 }) : null,
      s("text", { class: "heat-text", x: x + CELL / 2, y: y + CELL * 0.77 }, percent(share).replace(" ", "")));
  }));
}

/** Mark what the turn did: the cell walked to, the vehicle moved, the cell opened. */
function chosenMark(game, rows, action) {
  if (game === "minesweeper") {
    const cell = cellOf(action);
    return cell && s("rect", { class: "chosen-mark", x: CELL * cell[1] + 2, y: CELL * cell[0] + 2, width: CELL - 4, height: CELL - 4, rx: 6 });
  }
  if (game === "rush_hour") {
    const slide = slideOf(action);
    const vehicle = slide && vehiclesOf(rows).find(({ letter }) => letter === slide.letter);
    if (!vehicle) return null;
    const { row, col, length, isVertical } = vehicle;
    const shift = slide.sign * slide.count;
    const [r, c] = isVertical ? [row + shift, col] : [row, col + shift];
    const [width, height] = isVertical ? [1, length] : [length, 1];
    return s("rect", { class: "chosen-mark", x: CELL * c + 4, y: CELL * r + 4, width: CELL * width - 8, height: CELL * height - 8, rx: 11 });
  }
  const step = STEPS[action];
  if (game !== "sokoban" || !step) return null;
  const [row, col] = playerOf(rows);
  return s("rect", { class: "chosen-mark", x: CELL * (col + step[1]) + 3, y: CELL * (row + step[0]) + 3, width: CELL - 6, height: CELL - 6, rx: 8 });
}

const KINDS = { values: "Value of each move", line: "Optimal line", mines: "Mine probabilities" };

/** Return `{element, kinds}`: switches for what is drawn; `kinds` is the set of what is on. */
export function overlaySwitches(game, { isPlaying, onChange }) {
  const offered = Object.keys(KINDS).filter((kind) => kind !== "mines" || game === "minesweeper");
  const name = isPlaying ? "hints" : "overlays"; // who plays wants to think first
  const kinds = new Set(recalled(name, isPlaying ? [] : ["values", "mines"]));
  const flip = (kind, isOn) => {
    if (isOn) kinds.add(kind);
    else kinds.delete(kind);
    remember(name, [...kinds]);
    onChange();
  };
  const boxes = offered.map((kind) =>
    h("label", { class: "switch" },
      h("input", { type: "checkbox", name: `overlay-${kind}`, checked: kinds.has(kind), onchange: (event) => flip(kind, event.target.checked) }),
      h("span", {}, KINDS[kind])));
  return { kinds, element: h("fieldset", { class: "switches" }, h("legend", {}, isPlaying ? "Hints" : "Show on the board"), boxes) };
}
