/** The solver's line from a board, asked for when somebody wants to see it. */

import { postJson } from "./api.js";
import { factsOf } from "./games.js";

const known = new Map();

/** Return the line from a board of the interface to the goal; null where there is none, or it stays hidden. */
export async function optimalLine(game, board) {
  const fields = factsOf(game).puzzleOf(board);
  if (fields === null) return null;
  const puzzle = { game, ...fields };
  const name = JSON.stringify(puzzle);
  if (!known.has(name)) known.set(name, postJson("api/solve", puzzle).then(({ line }) => line));
  return known.get(name);
}
