/** How a person plays Rush Hour: by dragging a vehicle, or by choosing one and sliding it. */

import { h, refill } from "./dom.js";
import { CELL, roomOf, vehiclesOf } from "./geometry.js";
import { MOVES, listenToKeys } from "./keys.js";

/** Drag a vehicle, or choose one (click, or its letter) and slide it by arrow keys or buttons. */
export function steerVehicles(player, act) {
  const { board } = player;
  const controls = { chosen: null };
  const slides = h("div", { class: "slides", role: "group", "aria-label": "Slides of the chosen vehicle" });
  const find = (letter) => vehiclesOf(board.board.rows).find((vehicle) => vehicle.letter === letter);
  const slide = (letter, cells) => cells && act(`${letter}${cells > 0 ? "+" : "-"}${Math.abs(cells)}`);
  const refresh = () => {
    for (const element of board.element.querySelectorAll("[data-vehicle]")) element.classList.toggle("chosen", element.dataset.vehicle === controls.chosen);
    refill(slides, controls.chosen ? slideButtons(find(controls.chosen), board.board.rows, slide) : h("span", { class: "soft" }, "No vehicle is chosen."));
  };
  const choose = (letter) => { controls.chosen = letter; refresh(); };
  const stopKeys = listenToKeys(player, (event) => vehicleKey(event, { controls, choose, find, slide, rows: () => board.board.rows }));
  const letters = h("div", { class: "letters", role: "group", "aria-label": "Choose a vehicle" },
    vehiclesOf(board.board.rows).map(({ letter }) => h("button", { type: "button", "aria-label": `Vehicle ${letter}`, onclick: () => choose(letter) }, letter)));
  const stopDrag = dragVehicles(player, { choose, slide });
  refresh();
  const stop = () => { controls.chosen = null; refresh(); stopKeys(); stopDrag(); };
  const help = "Drag a vehicle. Or choose one by its letter and slide it with the arrow keys; Shift slides it as far as it goes.";
  return { element: h("div", { class: "vehicle-pad" }, letters, slides), help, refresh, stop };
}

function slideButtons(vehicle, rows, slide) {
  const { back, ahead } = roomOf(rows, vehicle);
  const [minus, plus] = vehicle.isVertical ? ["↑", "↓"] : ["←", "→"];
  const button = (cells) => {
    const name = `${vehicle.letter}${cells > 0 ? "+" : "-"}${Math.abs(cells)}`;
    return h("button", { type: "button", "aria-label": name, onclick: () => slide(vehicle.letter, cells) }, `${cells > 0 ? plus : minus} ${Math.abs(cells)}`);
  };
  const counts = [...Array(back).keys()].map((index) => index - back).concat([...Array(ahead).keys()].map((index) => index + 1));
  return [h("b", {}, vehicle.letter), counts.length ? counts.map(button) : h("span", { class: "soft" }, "cannot move")];
}

function vehicleKey(event, { controls, choose, find, slide, rows }) {
  const letter = event.key.length === 1 ? event.key.toUpperCase() : "";
  if (/^[A-Z]$/.test(letter) && find(letter)) {
    choose(letter);
    return true;
  }
  const direction = MOVES[event.key];
  const vehicle = controls.chosen && find(controls.chosen);
  if (!event.key.startsWith("Arrow") || !vehicle) return false;
  const isAlong = vehicle.isVertical ? ["Up", "Down"].includes(direction) : ["Left", "Right"].includes(direction);
  if (!isAlong) return true;
  const isAhead = direction === "Down" || direction === "Right";
  const room = roomOf(rows(), vehicle)[isAhead ? "ahead" : "back"];
  // One cell even where there is no room, so that the rules can say why not.
  const cells = event.shiftKey ? Math.max(room, 1) : 1;
  slide(vehicle.letter, isAhead ? cells : -cells);
  return true;
}

function dragVehicles(player, { choose, slide }) {
  const { board } = player;
  let drag = null;
  const along = (event, vehicle) => (vehicle.isVertical ? event.clientY : event.clientX);
  const down = (event) => {
    const element = event.target.closest("[data-vehicle]");
    if (!element || player.position !== player.last || event.button) return;
    const vehicle = vehiclesOf(board.board.rows).find(({ letter }) => letter === element.dataset.vehicle);
    drag = { vehicle, from: along(event, vehicle), room: roomOf(board.board.rows, vehicle), shift: 0, element };
    element.classList.add("held");
    board.element.setPointerCapture(event.pointerId);
    choose(vehicle.letter);
  };
  const move = (event) => {
    if (!drag) return;
    const units = (along(event, drag.vehicle) - drag.from) / board.element.getScreenCTM().a;
    drag.shift = Math.min(Math.max(units, -CELL * drag.room.back), CELL * drag.room.ahead);
    board.pieces.put(drag.vehicle.letter, drag.shift);
  };
  const up = (event) => {
    if (!drag) return;
    const cells = event.type === "pointerup" ? Math.round(drag.shift / CELL) : 0;
    drag.element.classList.remove("held");
    board.pieces.put(drag.vehicle.letter, CELL * cells);
    slide(drag.vehicle.letter, cells);
    drag = null;
  };
  const all = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up };
  for (const [name, listener] of Object.entries(all)) board.element.addEventListener(name, listener);
  board.element.classList.add("draggable");
  return () => {
    for (const [name, listener] of Object.entries(all)) board.element.removeEventListener(name, listener);
    board.element.classList.remove("draggable");
  };
}
