/** How a person plays: keys, pointer and buttons become the actions of a game. */

import { h } from "./dom.js";
import { factsOf } from "./games.js";

/**
 * Let a person play on a player's board. `act(action)` sends one action.
 *
 * Return `{element, help, refresh, stop}`: buttons below the board, a sentence, and two functions:
 * the first is called after each turn, the second ends it all.
 */
export function steer(player, act) {
  return (factsOf(player.episode.game).steer ?? steerByText)(player, act);
}

/** A game that was added: its action is typed. */
function steerByText(player, act) {
  const input = h("input", { name: "action", autocomplete: "off", required: true });
  const submit = (event) => { event.preventDefault(); act(input.value.trim()); input.value = ""; };
  const element = h("form", { class: "action-form", onsubmit: submit }, h("label", {}, "Action ", input), h("button", { type: "submit" }, "Play"));
  return { element, help: "", refresh: () => {}, stop: () => {} };
}
