/** The turns of an episode as a list: one button a turn, coloured and named by its regret. */

import { h, refill } from "./dom.js";
import { factsOf } from "./games.js";
import { shortCost, turnGrade } from "./wording.js";

/** A list that marks where the player stands; `onSeek(position)` when a turn is chosen. */
export class TurnList {
  constructor(onSeek) {
    this.onSeek = onSeek;
    this.element = h("ol", { class: "turns", "aria-label": "Turns" });
    this.drawn = 0;
  }

  /** Redraw what may have changed: all turns, since costs appear when a game is over. */
  update(episode) {
    this.element.parentElement?.toggleAttribute("hidden", episode.turns.length === 0);
    refill(this.element, episode.turns.map((turn, index) => h("li", {}, this.button(turn, index, episode.game))));
    if (episode.status === "over") this.element.append(h("li", {}, this.endButton(episode)));
  }

  button(turn, index, game) {
    const { grade, label } = turnGrade(turn, game);
    const cost = turn.cost_after === null ? "" : `${factsOf(game).letter} ${shortCost(turn.cost_after, game)}`;
    return h("button", { type: "button", class: `turn ${grade}`, onclick: () => this.onSeek(index) },
      h("span", { class: "number" }, String(index + 1)),
      h("span", { class: "action" }, turn.action || "—"),
      label ? h("span", { class: `grade ${grade}` }, label) : null,
      h("span", { class: "cost" }, cost));
  }

  endButton(episode) {
    const isSolved = episode.end_reason === "solved";
    return h("button", { type: "button", class: `turn end ${isSolved ? "best" : "dead"}`, onclick: () => this.onSeek(episode.turns.length) },
      h("span", { class: "number" }, "■"), h("span", { class: "action" }, "End"), h("span", { class: "cost" }, isSolved ? "solved" : episode.end_reason.replace("_", " ")));
  }

  /** Mark the turn at a position and bring it into view, inside the list alone. */
  mark(position) {
    [...this.element.children].forEach((item, index) => {
      const button = item.firstElementChild;
      if (index === position) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    const item = this.element.children[position];
    if (!item) return;
    const { top, bottom } = item.getBoundingClientRect();
    const frame = this.element.getBoundingClientRect();
    if (top < frame.top) this.element.scrollTop -= frame.top - top;
    if (bottom > frame.bottom) this.element.scrollTop += bottom - frame.bottom;
  }
}
