/** Rush Hour's pieces: vehicles over their cells, walls, the exit. */

import { refill, s } from "./dom.js";
import { CELL, arrow, badge, chip, slideOf, vehiclesOf } from "./geometry.js";

const NUM_PAINTS = 8;
const GAP = 4;
const FRAME = 10;
const EXIT = 34;

/** Draws the rows of a Rush Hour board into `layer`. */
export class RushHourPieces {
  constructor() {
    this.ground = s("g");
    this.cars = s("g");
    this.layer = s("g", {}, this.ground, this.cars);
    this.vehicles = new Map(); // letter -> vehicleOf() and its element
    this.kinds = "";
  }

  update({ rows }) {
    const places = vehiclesOf(rows);
    const kinds = places.map(({ letter, length, isVertical }) => letter + length + isVertical).join() + wallCells(rows).join();
    if (kinds !== this.kinds) this.build(kinds, places, rows);
    for (const place of places) {
      const vehicle = this.vehicles.get(place.letter);
      Object.assign(vehicle, place);
      this.put(place.letter, 0);
    }
    return [-FRAME, -FRAME, rows[0].length * CELL + FRAME + EXIT, rows.length * CELL + 2 * FRAME];
  }

  summary({ rows }) {
    const red = redCar(rows);
    const cells = rows[0].length - red.col - red.length;
    return `Rush Hour board, ${vehiclesOf(rows).length} vehicles, the red car A ${cells} cells from the exit at the right of row ${red.row}`;
  }

  build(kinds, places, rows) {
    this.kinds = kinds;
    this.vehicles.clear();
    const exitRow = redCar(rows).row;
    refill(this.ground, lot(rows, exitRow), wallCells(rows).map(wall), exit(rows[0].length, exitRow));
    refill(this.cars);
    for (const place of places) {
      const element = vehicle(place);
      this.vehicles.set(place.letter, { ...place, element });
      this.cars.append(element);
    }
  }

  /** Draw a vehicle so many units along its line from where it stands. */
  put(letter, shift) {
    const { row, col, isVertical, element } = this.vehicles.get(letter);
    const [x, y] = [CELL * col + (isVertical ? 0 : shift), CELL * row + (isVertical ? shift : 0)];
    element.style.setProperty("transform", `translate(${x}px, ${y}px)`);
  }
}

/** The exit is at the right of its row. */
function redCar(rows) {
  return vehiclesOf(rows).find(({ letter }) => letter === "A");
}

function wallCells(rows) {
  return rows.flatMap((line, row) => [...line].flatMap((symbol, col) => (symbol === "x" ? [[row, col]] : [])));
}

function lot(rows, exitRow) {
  const [width, height] = [rows[0].length * CELL, rows.length * CELL];
  const slots = rows.flatMap((line, row) => [...line].map((_, col) =>
    s("rect", { class: "slot", x: CELL * col + 2, y: CELL * row + 2, width: CELL - 4, height: CELL - 4, rx: 6 })));
  const [above, below, edge] = [exitRow * CELL, (exitRow + 1) * CELL, FRAME / 2];
  const r = 4 + edge; // of the corners
  return [
    s("rect", { class: "floor", x: -edge, y: -edge, width: width + 2 * edge, height: height + 2 * edge, rx: 10 }),
    slots,
    s("path", { class: "frame", d: `M${width + edge} ${above}V4q0-${r}-${r}-${r}H4q-${r} 0-${r} ${r}V${height - 4}q0 ${r} ${r} ${r}H${width - 4}q${r} 0 ${r}-${r}V${below}` }),
  ];
}

function exit(cols, exitRow) {
  const [x, y] = [cols * CELL + 10, CELL * (exitRow + 0.5)];
  return s("g", { class: "exit" }, s("path", { d: `M${x} ${y - 9}l9 9l-9 9M${x + 10} ${y - 9}l9 9l-9 9` }));
}

function wall([row, col]) {
  const [x, y] = [CELL * col, CELL * row];
  return s("g", {},
    s("rect", { class: "wall", x: x + 2, y: y + 2, width: CELL - 4, height: CELL - 4, rx: 6 }),
    s("path", { class: "wall-top", d: `M${x + 12} ${y + 36}l24-24M${x + 12} ${y + 22}l10-10M${x + 26} ${y + 36}l10-10` }));
}

function vehicle({ letter, length, isVertical }) {
  const paint = letter === "A" ? "red" : `paint-${(letter.charCodeAt(0) - 66) % NUM_PAINTS}`;
  const long = CELL * length;
  // Drawn as if it lay along a row, front at the right; an upright one is turned.
  const turned = isVertical ? `translate(${CELL} 0) rotate(90)` : null;
  return s(
    "g", { class: `vehicle mover ${paint}`, "data-vehicle": letter },
    s("g", { transform: turned },
      s("rect", { class: "shade", x: GAP, y: GAP + 2, width: long - 2 * GAP, height: CELL - 2 * GAP, rx: 11 }),
      s("rect", { class: "body", x: GAP, y: GAP, width: long - 2 * GAP, height: CELL - 2 * GAP, rx: 11 }),
      s("rect", { class: "roof", x: long * 0.22, y: 9.5, width: long * 0.5, height: CELL - 19, rx: 7 }),
      s("path", { class: "glass", d: `M${long * 0.76} 11q7 13 0 26M${long * 0.18} 12q-4 12 0 24` }),
      s("path", { class: "lamp", d: `M${long - 7.5} 11v6M${long - 7.5} ${CELL - 17}v6` })),
    s("text", { class: "plate", x: isVertical ? CELL / 2 : long * 0.47, y: isVertical ? long * 0.47 : CELL / 2, dy: "0.35em" }, letter),
  );
}

const MOST_SLIDES = 12;

/** Draw the value of a slide: the cost after it, where the vehicle's front comes to stand. */
export function slideValue(rows, move) {
  const { letter, sign, count } = slideOf(move.action);
  const { row, col, length, isVertical } = vehiclesOf(rows).find((vehicle) => vehicle.letter === letter);
  const front = (sign > 0 ? length - 1 : 0) + sign * count;
  // Kept to the side from which the vehicle comes: four vehicles can aim at one cell.
  const [along, across] = [front + 0.5 - 0.3 * sign, 0.5];
  const [x, y] = isVertical ? [col + across, row + along] : [col + along, row + across];
  const back = isVertical ? [0, -sign * 0.26] : [-sign * 0.26, 0];
  const [cx, cy] = [CELL * x, CELL * y];
  const tail = [cx + 0.8 * CELL * back[0], cy + 0.8 * CELL * back[1]];
  return [count === 1 ? s("path", { class: `way ${move.grade}`, d: `M${tail}L${cx} ${cy}` }) : null, chip(cx, cy, move, 9.5)];
}

/** Mark where a slide put its vehicle; null for another action. */
export function slideMark(rows, action) {
  const slide = slideOf(action);
  const vehicle = slide && vehiclesOf(rows).find(({ letter }) => letter === slide.letter);
  if (!vehicle) return null;
  const { row, col, length, isVertical } = vehicle;
  const shift = slide.sign * slide.count;
  const [r, c] = isVertical ? [row + shift, col] : [row, col + shift];
  const [width, height] = isVertical ? [1, length] : [length, 1];
  if (Math.min(r, c) < 0 || r + height > rows.length || c + width > rows.length) return null; // not allowed
  return s("rect", { class: "chosen-mark", x: CELL * c + 4, y: CELL * r + 4, width: CELL * width - 8, height: CELL * height - 8, rx: 11 });
}

/** Draw the first slides of a line, numbered. */
export function slideLine(rows, line) {
  const vehicles = new Map(vehiclesOf(rows).map((vehicle) => [vehicle.letter, { ...vehicle }]));
  const used = new Map(); // place of a badge -> how many are there
  return line.slice(0, MOST_SLIDES).map((action, index) => {
    const { letter, sign, count } = slideOf(action);
    const vehicle = vehicles.get(letter);
    const center = () => [CELL * (vehicle.col + (vehicle.isVertical ? 0.5 : vehicle.length / 2)), CELL * (vehicle.row + (vehicle.isVertical ? vehicle.length / 2 : 0.5))];
    const from = center();
    if (vehicle.isVertical) vehicle.row += sign * count;
    else vehicle.col += sign * count;
    const to = center();
    const number = used.get(String(from)) ?? 0;
    used.set(String(from), number + 1);
    const lane = (number ? -1 : 1) * 12;
    const shifted = ([x, y]) => (vehicle.isVertical ? [x + lane, y] : [x, y + lane]);
    return [arrow(shifted(from), shifted(to), index ? "head" : "head first"), badge(...shifted(from), index + 1)];
  });
}
