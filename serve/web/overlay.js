/** What the solver says of a board, drawn over it: values of moves, the optimal line, mine heat. */

import { h, recalled, refill, remember, s } from "./dom.js";
import { factsOf } from "./games.js";
import { CELL, cellOf } from "./geometry.js";
import { gradedMoves, percent } from "./wording.js";

/** Draw over a board what is switched on: `kinds` holds "values", "line", "mines"; `chosen` is the turn's action. */
export function drawOverlay(board, analysis, { kinds, chosen }) {
  if (!board.overlay) return;
  const rows = board.board.rows;
  const { drawValue, drawMark, drawLine } = factsOf(board.game);
  refill(
    board.overlay,
    kinds.has("mines") && analysis?.mines ? mineHeat(analysis.mines, analysis.best) : null,
    chosen ? drawMark(rows, chosen) : null,
    kinds.has("line") && analysis?.line?.length ? s("g", { class: "line" }, drawLine(rows, analysis.line)) : null,
    kinds.has("values") ? moveValues(drawValue, rows, gradedMoves(analysis, board.game)) : null,
  );
}

function moveValues(drawValue, rows, moves) {
  // The best last, so that nothing covers it.
  return moves.sort((a, b) => (a.grade === "best") - (b.grade === "best")).map((move) => drawValue(rows, move));
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

const KINDS = { values: "Value of each move", line: "Optimal line", mines: "Mine probabilities" };

/** Return `{element, kinds}`: switches for what is drawn; `kinds` is the set of what is on. */
export function overlaySwitches(game, { isPlaying, onChange }) {
  const offered = Object.keys(KINDS).filter((kind) => kind !== "mines" || factsOf(game).hides);
  const name = isPlaying ? "hints" : "overlays"; // players want to think first
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
