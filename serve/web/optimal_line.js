/** The solver's line from a board, asked for when somebody wants to see it. */

import { postJson } from "./api.js";

const known = new Map();

/** Return the line from a board of the interface to the goal; null where there is none, or it is not told. */
export async function optimalLine(game, board) {
  const puzzle = puzzleOf(game, board);
  if (puzzle === null) return null;
  const name = JSON.stringify(puzzle);
  if (!known.has(name)) known.set(name, postJson("api/solve", puzzle).then(({ line }) => line));
  return known.get(name);
}

/** Return what the solver is asked; null for a Minesweeper board whose mines are still hidden. */
function puzzleOf(game, { rows, mines }) {
  if (game !== "minesweeper") return { game, board: rows };
  if (!mines) return null;
  const marked = (isMarked) => rows.map((line) => [...line].map((symbol) => (isMarked(symbol) ? "1" : "0")).join(""));
  return {
    game, mines, rows: rows.length, cols: rows[0].length,
    revealed: marked((symbol) => !".F".includes(symbol)), flags: marked((symbol) => symbol === "F"),
  };
}
