/** What costs, turns and ends are called. */

import { factsOf } from "./games.js";

const ENDS = {
  solved: "Solved.",
  deadlock: "Lost: the solver proved that no win is left.",
  turn_budget: "Not solved: the turns ran out.",
  token_budget: "Not solved: the tokens ran out.",
  truncated: "Not solved: the answer was cut off.",
  no_answer: "Not solved: no usable answer came.",
  cancelled: "Ended by hand.",
  failed: "Ended by a failure.",
};

/** Return the end of an episode in words. */
export function endWords(episode) {
  if (episode.end_reason === "failed" && episode.error) return episode.error.message;
  if (episode.end_reason === "lost") return factsOf(episode.game).lost;
  return ENDS[episode.end_reason] ?? `Ended: ${episode.end_reason}.`;
}

export const END_REASONS = { solved: "solved", lost: "lost by the rules", deadlock: "lost by deadlock", turn_budget: "turns ran out", token_budget: "tokens ran out", truncated: "answer cut off" };

const EFFECTS = {
  changed: "", ineffective: "no effect", illegal: "not allowed", invalid: "no valid action", truncated: "answer cut off",
};

/** Return what an action did, in words; empty for one that changed the board. */
export function effectWords(effect) {
  return EFFECTS[effect] ?? effect;
}

/** Return a cost as short text: a number, the word for infinite, "unknown" or "hidden". */
export function costText(cost, game) {
  if (cost === "dead") return factsOf(game).infinite;
  if (cost === "unknown") return "unknown";
  return cost === null || cost === undefined ? "hidden" : String(cost);
}

/** Return a cost as text for narrow places. */
export function shortCost(cost, game) {
  return cost === "dead" ? factsOf(game).short : costText(cost, game);
}

/** Return a cost with its unit. */
export function costWords(cost, game) {
  if (typeof cost !== "number") return costText(cost, game);
  const unit = factsOf(game).unit;
  return `${cost} ${cost === 1 ? unit : `${unit}s`}`;
}

/** Return a share as whole percent, with one decimal where whole ones would say 0 or 100 wrongly. */
export function percent(share) {
  if (share === null || share === undefined) return "unknown";
  const value = 100 * share;
  const isNearEnd = (value > 0 && value < 1) || (value > 99 && value < 100);
  return `${isNearEnd ? value.toFixed(1) : Math.round(value)}%`;
}

/** Return a number with at most four digits that matter. */
export function figure(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0) return `−${figure(-value)}`;
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value >= 0.001 && value < 1e6 ? String(Number(value.toPrecision(value >= 1000 ? 5 : 3))) : value.toExponential(2);
}

const signed = (value) => `+${value}`;

/** Return how good a turn was: `{grade, label, title}`; the grade names its colour. */
export function turnGrade(turn, game) {
  const effect = effectWords(turn.effect);
  if (turn.effect === "invalid" || turn.effect === "truncated") return { grade: "invalid", label: effect, title: "no action was carried out" };
  if (effect) return { grade: "none", label: effect, title: "the board stayed as it was" };
  const { hides, loss } = factsOf(game);
  if (loss && turn.board_after.rows.join("").includes(loss.symbol)) return { grade: "dead", label: loss.label, title: loss.title };
  if (!hides && turn.cost_after === "dead" && typeof turn.cost_before === "number") {
    return { grade: "dead", label: "deadlock", title: "after this action no win is left" };
  }
  if (typeof turn.regret === "number") return regretGrade(turn.regret, factsOf(game).unit);
  if (turn.is_safe) return { grade: "best", label: "provably safe", title: "what is open proves that no mine is there" };
  if (typeof turn.excess_risk === "number") return riskGrade(turn.excess_risk);
  return { grade: "none", label: "", title: "without a value" };
}

/** Return the grade of a regret in moves. */
export function regretGrade(regret, unit) {
  if (regret === 0) return { grade: "best", label: "best", title: "no action is better" };
  return { grade: regret <= 2 ? "worse" : "bad", label: signed(regret), title: `${regret} ${unit}${regret === 1 ? "" : "s"} more than the best action` };
}

function riskGrade(excess) {
  if (excess < 1e-9) return { grade: "best", label: "safest", title: "no cell is less likely to be a mine" };
  return { grade: excess <= 0.1 ? "worse" : "bad", label: `risk +${percent(excess)}`, title: "more likely to be a mine than the safest cell" };
}

/** Return `[{action, cost, grade, label}, …]` for the moves of an analysis, in canonical order. */
export function gradedMoves(analysis, game) {
  if (!analysis?.q) return [];
  const known = Object.values(analysis.q).filter((cost) => typeof cost === "number");
  const least = known.length ? Math.min(...known) : null;
  return Object.entries(analysis.q).map(([action, cost]) => {
    if (typeof cost !== "number") return { action, cost, grade: cost === "dead" ? "dead" : "unknown", label: costText(cost, game) };
    return { action, cost, ...regretGrade(cost - least, factsOf(game).unit) };
  });
}
