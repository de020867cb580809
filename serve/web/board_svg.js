/** A board as a picture: one renderer per game, text for a game that has none. */

import { freshId, h, refill, s } from "./dom.js";
import { factsOf } from "./games.js";
import { CELL } from "./geometry.js";

/** Return a board to look at, of `PictureBoard` or `TextBoard`; both have `element` and `update`. */
export function createBoard(game, { is_text: isText = false } = {}) {
  const { Pieces } = factsOf(game);
  return Pieces && !isText ? new PictureBoard(game, new Pieces()) : new TextBoard(game);
}

/** A drawn board. What stays on the board between two updates moves to its new place. */
class PictureBoard {
  constructor(game, pieces) {
    this.game = game;
    this.pieces = pieces;
    this.title = s("title", { id: freshId("board-title") });
    this.description = s("desc", { id: freshId("board-text") });
    this.overlay = s("g", { class: "overlay", "aria-hidden": "true" });
    this.element = s(
      "svg",
      { class: `board ${game}`, role: "img", "aria-labelledby": this.title.id, "aria-describedby": this.description.id },
      this.title, this.description, pieces.layer, this.overlay,
    );
  }

  /** Show a board of the interface (`rows`, `text`, `mines`). */
  update(board) {
    const [left, top, width, height] = this.pieces.update(board);
    this.element.setAttribute("viewBox", `${left} ${top} ${width} ${height}`);
    this.element.style.setProperty("aspect-ratio", `${width} / ${height}`);
    this.element.style.setProperty("--cols", String(width / CELL));
    this.title.textContent = this.pieces.summary(board);
    this.description.textContent = board.text;
    this.board = board;
  }

  /** Return `[row, col]` under a pointer, also outside of the board. */
  cellAt(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.element.getScreenCTM().inverse());
    return [Math.floor(point.y / CELL), Math.floor(point.x / CELL)];
  }
}

/** A game that is not drawn here: the picture that came with the board, or its text. */
class TextBoard {
  constructor(game) {
    this.game = game;
    this.overlay = null;
    this.element = h("div", { class: "board told" });
  }

  update(board) {
    this.board = board;
    const named = board.is_text ? { class: "text prose" } : { class: "text", role: "img", "aria-label": `Board: ${board.text}` };
    refill(this.element, board.picture ? h("img", { src: board.picture, alt: board.text }) : h("pre", { ...named, tabindex: "0" }, board.rows.join("\n")));
  }
}
