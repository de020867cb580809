/** What is said of one turn: the model's text, what it did, what each move was worth, its advantages. */

import { h } from "./dom.js";
import { answerElement } from "./answer.js";
import { factsOf } from "./games.js";
import { costText, costWords, effectWords, endWords, figure, gradedMoves, percent, turnGrade } from "./wording.js";

const ADVANTAGES = {
  shifted: "drop in cost-to-go", solver: "credit", outcome: "outcome advantage", step: "step advantage", turn: "total: what each token gets",
};

/** Return the elements that describe the turn at a position; the last position is the end. */
export function turnPanel(episode, position) {
  const turn = episode.turns[position];
  if (!turn) return endPanel(episode);
  return [
    playedTurn(episode, turn),
    episode.player === "agent" ? figures(turn) : null,
    movesIfAsked(episode, turn.analysis, turn.action),
    turn.advantages ? advantages(turn.advantages) : null,
  ];
}

/** What was played, what it did, and the model's text. */
function playedTurn(episode, turn) {
  const { grade, label, title } = turnGrade(turn, episode.game);
  const verdict = h("p", { class: "verdict" },
    h("span", { class: "action" }, turn.action || "no action"),
    label ? h("span", { class: `grade ${grade}`, title }, label) : null,
    h("span", { class: "change" }, changeText(turn, episode.game)));
  return [
    verdict,
    turn.feedback ? h("p", { class: "feedback" }, turn.feedback) : null,
    episode.player === "agent" ? answerElement(turn.answer || "(empty answer)", turn.action !== "") : null,
  ];
}

function changeText(turn, game) {
  const { letter } = factsOf(game);
  if (turn.cost_before === null && turn.cost_after === null) return effectWords(turn.effect) ? "" : "the board changed";
  return `${letter} ${costText(turn.cost_before, game)} → ${costText(turn.cost_after, game)}`;
}

function figures(turn) {
  const parts = [
    turn.num_tokens === null || turn.num_tokens === undefined ? null : `${turn.num_tokens} tokens`,
    typeof turn.seconds === "number" ? `${figure(turn.seconds)} s` : null,
    typeof turn.excess_risk === "number" ? `excess risk ${percent(turn.excess_risk)}` : null,
  ].filter((part) => part);
  return parts.length ? h("p", { class: "figures" }, parts.join(" · ")) : null;
}

function endPanel(episode) {
  if (episode.status === "playing") {
    const waits = { agent: "The model is thinking …", solver: "The solver moves next …", human: "Your move." };
    return [h("p", { class: "verdict waiting" }, waits[episode.player]), movesIfAsked(episode, episode.analysis, ""), lastTurn(episode)];
  }
  return [
    h("p", { class: `ending ${episode.end_reason === "solved" ? "solved" : "failed"}` }, endWords(episode)),
    h("p", { class: "soft" }, `${episode.turns.length} of ${episode.turn_budget} turns${costAtStart(episode)}.`),
  ];
}

/** Who watches a running episode reads what was answered last while the next answer is made. */
function lastTurn(episode) {
  const turn = episode.turns.at(-1);
  return turn ? h("div", { class: "last-turn" }, h("h2", { class: "small soft" }, `Turn ${episode.turns.length}, just played`), playedTurn(episode, turn)) : null;
}

/** Who still plays is not told what each move is worth. */
function movesIfAsked(episode, analysis, chosen) {
  const isPlaying = episode.player === "human" && episode.status === "playing";
  return isPlaying ? null : movesTable(analysis, episode.game, chosen);
}

function costAtStart(episode) {
  const cost = episode.turns[0]?.cost_before;
  return typeof cost === "number" ? `; ${factsOf(episode.game).letter} was ${costWords(cost, episode.game)} at the start` : "";
}

/** Return the values of all moves as a table: what the overlay draws, for everybody. */
export function movesTable(analysis, game, chosen) {
  const moves = gradedMoves(analysis, game);
  if (!moves.length) return null;
  const { letter } = factsOf(game);
  const teacher = analysis.teacher;
  const row = ({ action, cost, grade, label }) =>
    h("tr", { class: action === chosen ? "is-chosen" : null },
      h("th", { scope: "row" }, action, action === chosen ? h("span", { class: "soft" }, " (chosen)") : null),
      h("td", {}, costText(cost, game)),
      h("td", {}, h("span", { class: `grade ${grade}` }, label)),
      teacher ? h("td", {}, percent(teacher[action])) : null);
  return h("details", { class: "fold", open: moves.length <= 8 },
    h("summary", {}, moves.length === 1 ? "The only move" : `All ${moves.length} moves`),
    h("table", { class: "moves" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Move"), h("th", { scope: "col" }, `${letter} after`), h("th", { scope: "col" }, "Regret"), teacher ? h("th", { scope: "col" }, "Teacher") : null)),
      h("tbody", {}, moves.map(row))));
}

function advantages(values) {
  return h("div", {},
    h("h2", { class: "small" }, "Advantages"),
    h("dl", { class: "pairs" }, Object.entries(values).map(([name, value]) => [
      h("dt", {}, ADVANTAGES[name] ?? name), h("dd", { class: value < 0 ? "minus" : null }, signedFigure(value))])));
}

function signedFigure(value) {
  return typeof value === "number" && value > 0 ? `+${figure(value)}` : figure(value);
}
