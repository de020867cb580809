/** How a person plays Sokoban: by keys or a pad of buttons. */

import { h } from "./dom.js";
import { MOVES, listenToKeys } from "./keys.js";

const ARROWS = { Up: "↑", Down: "↓", Left: "←", Right: "→" };

/** As `steer` in `human.js`. */
export function steerWalker(player, act) {
  const stop = listenToKeys(player, (event) => {
    const action = MOVES[event.key];
    if (action) act(action);
    return Boolean(action);
  });
  const button = (action) => h("button", { type: "button", class: `pad ${action.toLowerCase()}`, "aria-label": action, onclick: () => act(action) }, ARROWS[action]);
  const element = h("div", { class: "direction-pad", role: "group", "aria-label": "Move" }, Object.keys(ARROWS).map(button));
  return { element, help: "Arrow keys or W A S D move you; walk into a box to push it.", refresh: () => {}, stop };
}
