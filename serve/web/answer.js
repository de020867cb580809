/** The model's text with its action marked: the last fenced block, as the games read it. */

import { h } from "./dom.js";

const FENCE = "```";

/** Return `[start, end]` of the last pair of fences and what is between; null without a pair. */
export function lastFencedBlock(answer) {
  const pieces = answer.split(FENCE);
  const numPairs = Math.floor((pieces.length - 1) / 2);
  if (numPairs === 0) return null;
  const before = pieces.slice(0, 2 * numPairs - 1).join(FENCE).length;
  return [before, before + 2 * FENCE.length + pieces[2 * numPairs - 1].length];
}

/** Return the answer as an element; `isUsed` says whether an action was read from it. */
export function answerElement(answer, isUsed) {
  const block = lastFencedBlock(answer);
  const text = h("pre", { class: "answer", tabindex: "0", "aria-label": "The model’s answer" });
  if (block === null) {
    text.append(answer);
    return text;
  }
  const [start, end] = block;
  const note = isUsed ? "the chosen action" : "no action of the game";
  text.append(answer.slice(0, start), h("mark", { class: isUsed ? "chosen" : "refused", title: note }, answer.slice(start, end)), answer.slice(end));
  return text;
}
