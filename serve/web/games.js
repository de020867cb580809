/** What the page knows about each game: words, drawings and controls. Nothing else asks for a game by its name. */

import { MinesweeperPieces, cellMark, minefieldOf, revealLine, revealValue } from "./board_minesweeper.js";
import { RushHourPieces, slideLine, slideMark, slideValue } from "./board_rush_hour.js";
import { SokobanPieces, stepLine, stepMark, stepValue } from "./board_sokoban.js";
import { steerMines } from "./human_minesweeper.js";
import { steerVehicles } from "./human_rush_hour.js";
import { steerWalker } from "./human_sokoban.js";

/**
 * Of a game that was added. `hides`: whether players do not see the whole state; `loss`: the symbol of a lost
 * board, and what to call it; `Pieces`: draws boards, with the other `draw…` over them; `steer`: lets a person play.
 */
const DEFAULTS = {
  letter: "N", unit: "move", infinite: "lost", short: "lost", lost: "Lost by the rules.",
  meaning: "moves that the best player would still need",
  hint: null, hides: false, loss: null, Pieces: null, steer: null,
  puzzleOf: ({ rows }) => ({ board: rows }),
};
const GAMES = {
  sokoban: {
    hint: "# wall, _ floor, O target, X box, * box on target, P you, S you on a target",
    Pieces: SokobanPieces, drawValue: stepValue, drawMark: stepMark, drawLine: stepLine, steer: steerWalker,
  },
  rush_hour: {
    unit: "slide", meaning: "slides that the best player would still need",
    hint: ". empty, x wall, A the red car, B to Z vehicles; six lines of six",
    Pieces: RushHourPieces, drawValue: slideValue, drawMark: slideMark, drawLine: slideLine, steer: steerVehicles,
  },
  minesweeper: {
    letter: "K", unit: "reveal", infinite: "solver loses", short: "loses", lost: "Lost: a mine was hit.",
    meaning: "reveals that the solver, which never peeks, would still need on this board",
    hint: ". closed, + closed with a mine, 0 to 8 open; F, f flags",
    hides: true, loss: { symbol: "*", label: "mine hit", title: "this reveal hit a mine" },
    Pieces: MinesweeperPieces, drawValue: revealValue, drawMark: cellMark, drawLine: revealLine, steer: steerMines,
    puzzleOf: minefieldOf,
  },
};

/** Take `{name: facts}` of games that were added. */
export function learnGames(facts) {
  for (const [name, of] of Object.entries(facts)) GAMES[name] ??= of;
}

/** Return the facts about a game; the default ones for a game that was added. */
export function factsOf(game) {
  return { ...DEFAULTS, ...GAMES[game] };
}
