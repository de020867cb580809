/** Sokoban's pieces: walls, floor, targets, boxes, the player. */

import { refill, s } from "./dom.js";
import { CELL, STEPS, arrow, chip, playerOf } from "./geometry.js";

/** Draws the rows of a Sokoban board into `layer`. Boxes have identity, so that a push can be seen. */
export class SokobanPieces {
  constructor() {
    this.ground = s("g");
    this.movers = s("g");
    this.layer = s("g", {}, this.ground, this.movers);
    this.room = "";
    this.boxes = []; // {row, col, element}
    this.player = null;
  }

  /** Return the part of the plane that is seen: left, top, width, height. */
  update({ rows }) {
    const room = rows.join("\n").replaceAll(/[XP]/g, "_").replaceAll(/[*S]/g, "O");
    if (room !== this.room) this.build(room, rows);
    this.placeBoxes(cellsOf(rows, "X*"), rows);
    const [[row, col]] = cellsOf(rows, "PS");
    place(this.player, row, col);
    return [0, 0, CELL * rows[0].length, CELL * rows.length];
  }

  summary({ rows }) {
    const stored = cellsOf(rows, "*").length;
    return `Sokoban board, ${rows.length} by ${rows[0].length}, ${stored} of ${stored + cellsOf(rows, "X").length} boxes on targets`;
  }

  build(room, rows) {
    this.room = room;
    this.boxes = [];
    this.player = player();
    refill(this.movers, this.player);
    refill(this.ground, floor(rows), cellsOf(rows, "O*S").map(target), walls(rows));
  }

  placeBoxes(cells, rows) {
    const isAt = (box, [row, col]) => box.row === row && box.col === col;
    const vacant = cells.filter((cell) => !this.boxes.some((box) => isAt(box, cell)));
    const moved = this.boxes.filter((box) => !cells.some((cell) => isAt(box, cell)));
    for (const cell of vacant) {
      const box = moved.pop() ?? this.newBox();
      [box.row, box.col] = cell;
    }
    for (const box of moved) box.element.remove();
    this.boxes = this.boxes.filter((box) => !moved.includes(box));
    for (const box of this.boxes) {
      place(box.element, box.row, box.col);
      box.element.classList.toggle("stored", rows[box.row][box.col] === "*");
    }
  }

  newBox() {
    const box = { row: -1, col: -1, element: crate() };
    this.boxes.push(box);
    this.movers.prepend(box.element);
    return box;
  }
}

function place(element, row, col) {
  element.style.setProperty("transform", `translate(${CELL * col}px, ${CELL * row}px)`);
}

function cellsOf(rows, symbols) {
  return rows.flatMap((line, row) => [...line].flatMap((symbol, col) => (symbols.includes(symbol) ? [[row, col]] : [])));
}

function floor(rows) {
  const isFloor = (row, col) => (rows[row]?.[col] ?? "#") !== "#";
  // Also below the walls around, whose corners are round.
  const isSeen = (row, col) => [-1, 0, 1].some((down) => [-1, 0, 1].some((right) => isFloor(row + down, col + right)));
  const squares = (isWanted) => rows.flatMap((line, row) => [...line].map((_, col) => (isWanted(row, col) ? `M${CELL * col} ${CELL * row}h${CELL}v${CELL}h-${CELL}z` : ""))).join("");
  return [
    s("path", { class: "floor", d: squares(isSeen) }),
    s("path", { class: "tile", d: squares((row, col) => isFloor(row, col) && (row + col) % 2) }),
  ];
}

/** Walls as one shape a cell, joined to the walls beside, so that only outer corners are round. */
function walls(rows) {
  const isWall = (row, col) => rows[row]?.[col] === "#";
  const parts = cellsOf(rows, "#").flatMap(([row, col]) => [
    s("path", { class: "wall", d: corners(row, col, isWall) }),
    isWall(row + 1, col) || row + 1 === rows.length ? null : front(row, col, isWall),
  ]);
  return s("g", {}, parts);
}

/** The side of a wall that looks at the floor below it. */
function front(row, col, isWall) {
  const [left, right] = [isWall(row, col - 1) && !isWall(row + 1, col - 1) ? 0 : 8, isWall(row, col + 1) && !isWall(row + 1, col + 1) ? 0 : 8];
  const [x, y] = [CELL * col, CELL * (row + 1)];
  return s("path", { class: "wall-front", d: `M${x} ${y - 8}q0 8 ${left} 8H${x + CELL - right}q${right} 0 ${right} -8z` });
}

function corners(row, col, isWall) {
  const [x, y, r] = [CELL * col, CELL * row, 8];
  const round = (dr, dc) => (isWall(row + dr, col) || isWall(row, col + dc) ? 0 : r);
  const [nw, ne, se, sw] = [round(-1, -1), round(-1, 1), round(1, 1), round(1, -1)];
  return (
    `M${x + nw} ${y}H${x + CELL - ne}a${ne} ${ne} 0 0 1 ${ne} ${ne}V${y + CELL - se}a${se} ${se} 0 0 1 -${se} ${se}` +
    `H${x + sw}a${sw} ${sw} 0 0 1 -${sw} -${sw}V${y + nw}a${nw} ${nw} 0 0 1 ${nw} -${nw}z`
  );
}

function target([row, col]) {
  const [cx, cy] = [CELL * (col + 0.5), CELL * (row + 0.5)];
  return s("g", {}, s("circle", { class: "target", cx, cy, r: 16 }), s("circle", { class: "target-core", cx, cy, r: 5 }));
}

function crate() {
  return s(
    "g", { class: "box mover" },
    s("rect", { class: "shade", x: 6, y: 8, width: 36, height: 36, rx: 6 }),
    s("rect", { class: "crate", x: 6, y: 5, width: 36, height: 36, rx: 5 }),
    s("path", { class: "planks", d: "M12 11l24 24M36 11L12 35" }),
    s("rect", { class: "planks", x: 11, y: 10, width: 26, height: 26, rx: 2 }),
    s("path", { class: "check", d: "M15 24l6.5 6.5L34 17" }),
  );
}

function player() {
  return s(
    "g", { class: "player mover" },
    s("ellipse", { class: "shade", cx: 24, cy: 41, rx: 12, ry: 3.5 }),
    s("path", { class: "body", d: "M12 40c0-8 5-12 12-12s12 4 12 12z" }),
    s("circle", { class: "head", cx: 24, cy: 18, r: 12 }),
    s("circle", { class: "eye", cx: 19.5, cy: 18, r: 2 }),
    s("circle", { class: "eye", cx: 28.5, cy: 18, r: 2 }),
  );
}

/** Units by which a step keeps to the right of its way, so that going there and back are two lines. */
const LANE = 6;

/** Draw the value of a step: an arrow to the cell, and at its far edge, off what stands there, the cost after it. */
export function stepValue(rows, move) {
  const [row, col] = playerOf(rows);
  const [down, right] = STEPS[move.action];
  const [x, y] = [CELL * (col + 0.5), CELL * (row + 0.5)];
  const at = (far) => [x + CELL * far * right, y + CELL * far * down];
  return [arrow(at(0.34), at(0.68), move.grade), chip(...at(1.5), move, 10)];
}

/** Mark the cell that a step went to; null for another action. */
export function stepMark(rows, action) {
  const step = STEPS[action];
  if (!step) return null;
  const [row, col] = playerOf(rows);
  return s("rect", { class: "chosen-mark", x: CELL * (col + step[1]) + 3, y: CELL * (row + step[0]) + 3, width: CELL - 6, height: CELL - 6, rx: 8 });
}

/** Draw the way that a line of steps walks. */
export function stepLine(rows, line) {
  let [row, col] = playerOf(rows);
  const points = [];
  for (const action of line) {
    const [down, right] = STEPS[action];
    const [x, y] = [CELL * (col + 0.5) - LANE * down, CELL * (row + 0.5) + LANE * right];
    points.push([[x, y], [x + CELL * right, y + CELL * down]]);
    [row, col] = [row + down, col + right];
  }
  const way = points.map(([from, to], index) => `${index ? "L" : "M"}${from}L${to}`).join("");
  const heads = points.map(([from, to], index) => {
    const middle = [(from[0] + 2 * to[0]) / 3, (from[1] + 2 * to[1]) / 3];
    return arrow(from, middle, index ? "head" : "head first");
  });
  return [s("path", { class: "line-way", d: way }), heads, s("circle", { class: "line-end", cx: points.at(-1)[1][0], cy: points.at(-1)[1][1], r: 4.5 })];
}
