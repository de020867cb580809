/** Keys that play: which direction each one means, and how a game listens to its own. */

import { isOnControl, isTyping } from "./dom.js";

/** The direction of each key. */
export const MOVES = {
  ArrowUp: "Up", ArrowDown: "Down", ArrowLeft: "Left", ArrowRight: "Right",
  w: "Up", s: "Down", a: "Left", d: "Right", W: "Up", S: "Down", A: "Left", D: "Right",
};

/** Call `press(event)` for keys that are the game's; return a function that ends it. */
export function listenToKeys(player, press) {
  const pressed = (event) => {
    if (isTyping(event) || player.position !== player.last) return;
    if (isOnControl(event) && (event.key === "Enter" || event.key === " ")) return;
    if (press(event)) event.preventDefault();
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}
