/** How a person plays Minesweeper: click, long press, and a cursor that keys move. */

import { announce, h, s } from "./dom.js";
import { CELL, STEPS } from "./geometry.js";
import { listenToKeys } from "./keys.js";

const LONG_PRESS_MS = 450;
const MOVES = { ArrowUp: "Up", ArrowDown: "Down", ArrowLeft: "Left", ArrowRight: "Right" };

/** As `steer` in `human.js`. */
export function steerMines(player, act) {
  const { board } = player;
  const cursor = { row: 0, col: 0, isShown: false };
  const mark = s("rect", { class: "cursor", width: CELL - 6, height: CELL - 6, rx: 6, visibility: "hidden" });
  board.element.append(mark);
  const flagging = h("button", { type: "button", class: "mode", "aria-pressed": "false", onclick: () => setFlagging(!isFlagging()) }, "⚑ Flag mode");
  const isFlagging = () => flagging.getAttribute("aria-pressed") === "true";
  const setFlagging = (isOn) => flagging.setAttribute("aria-pressed", String(isOn));
  const refresh = () => {
    mark.setAttribute("x", CELL * cursor.col + 3);
    mark.setAttribute("y", CELL * cursor.row + 3);
    mark.setAttribute("visibility", cursor.isShown ? "visible" : "hidden");
  };
  const open = (row, col, verb) => act(`${verb} ${row} ${col}`);
  const stopKeys = listenToKeys(player, (event) => cursorKey(event, { cursor, board, refresh, open }));
  const stopPointer = pointCells(player, { verb: () => (isFlagging() ? "flag" : "reveal"), open, hideCursor: () => { cursor.isShown = false; refresh(); } });
  refresh();
  const stop = () => { mark.remove(); stopKeys(); stopPointer(); };
  const help = "Click opens a cell; right click or a long press flags it. With keys: arrows move the frame, Enter opens, F flags.";
  return { element: h("div", { class: "mine-pad" }, flagging), help, refresh, stop };
}

function cursorKey(event, { cursor, board, refresh, open }) {
  const { rows } = board.board;
  const step = STEPS[MOVES[event.key]];
  if (step) {
    if (cursor.isShown) {
      cursor.row = (cursor.row + step[0] + rows.length) % rows.length;
      cursor.col = (cursor.col + step[1] + rows[0].length) % rows[0].length;
    }
    cursor.isShown = true;
    refresh();
    announce(`Row ${cursor.row}, column ${cursor.col}: ${cellWords(rows[cursor.row][cursor.col])}`);
    return true;
  }
  if (!cursor.isShown || !["Enter", " ", "f", "F"].includes(event.key)) return false;
  open(cursor.row, cursor.col, event.key.toLowerCase() === "f" ? "flag" : "reveal");
  return true;
}

function cellWords(symbol) {
  return { ".": "closed", F: "flag", "*": "mine", 0: "open, no mines around" }[symbol] ?? `open, ${symbol} around`;
}

function pointCells(player, { verb, open, hideCursor }) {
  const { board } = player;
  let press = null;
  const cell = (event) => {
    const [row, col] = board.cellAt(event);
    return board.board.rows[row]?.[col] === undefined || player.position !== player.last ? null : [row, col];
  };
  const down = (event) => {
    const at = cell(event);
    if (!at || event.button) return;
    hideCursor();
    const flag = () => { press = null; open(...at, "flag"); };
    press = { at, timer: setTimeout(flag, LONG_PRESS_MS) };
  };
  const up = (event) => {
    if (!press) return;
    clearTimeout(press.timer);
    const at = cell(event);
    if (event.type === "pointerup" && at && String(at) === String(press.at)) open(...at, verb());
    press = null;
  };
  const menu = (event) => {
    event.preventDefault(); // also what a long press on a touch screen would open
    if (event.button === 2 && event.pointerType !== "touch" && cell(event)) open(...cell(event), "flag");
  };
  const all = { pointerdown: down, pointerup: up, pointercancel: up, contextmenu: menu };
  for (const [name, listener] of Object.entries(all)) board.element.addEventListener(name, listener);
  board.element.classList.add("clickable");
  return () => {
    for (const [name, listener] of Object.entries(all)) board.element.removeEventListener(name, listener);
    board.element.classList.remove("clickable");
  };
}
