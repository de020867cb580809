/** Numbers as text, by the unit of what they count: one way in every picture and table. */

/** `[[name, size, least number that is written in it], …]` of units whose numbers are written in several. */
const SCALES = {
  seconds: [["s", 1, 1], ["ms", 1e-3, 1e-3], ["µs", 1e-6, 0]],
  MiB: [["GiB", 1024, 1024], ["MiB", 1, 0]],
};

/** Return whether numbers of this unit are written with it. */
export function isWritten(unit) {
  return unit === "share" || unit in SCALES;
}

/** Return how many of a unit the one has that its numbers are written in: 1024 for MiB that are written as GiB. */
export function sizeOf(unit, values) {
  return scaleOf(unit, values)[1];
}

function scaleOf(unit, values) {
  const most = Math.max(0, ...values.filter((value) => typeof value === "number").map(Math.abs));
  return (SCALES[unit] ?? []).find(([, , least]) => most >= least) ?? ["", 1];
}

/** Return a function from a number to its text, with as many digits as tell `values` apart. */
export function formatOf(unit, values) {
  const known = values.filter((value) => typeof value === "number");
  if (unit === "share") return (value) => `${decimal(100 * value, stepOf(known, 100))}%`;
  const [name, size] = scaleOf(unit, known);
  const step = stepOf(known, 1 / size);
  return (value) => `${signOf(unit, value)}${decimal(value / size, step)}${name && ` ${name}`}`;
}

/** Moves are gains or losses. */
function signOf(unit, value) {
  return unit === "moves" && value > 0 ? "+" : "";
}

/** Return the least distance of two values; of a single one a hundredth of it. */
function stepOf(values, factor) {
  const sorted = [...new Set(values.map((value) => value * factor))].sort((one, other) => one - other);
  if (sorted.length < 2) return Math.abs(sorted[0] ?? 1) / 100;
  return Math.min(...sorted.slice(1).map((value, place) => value - sorted[place]));
}

function decimal(value, step) {
  const digits = Math.min(Math.max(0, -Math.floor(Math.log10(step || 1) + 1e-9)), 6);
  const isTiny = value !== 0 && Math.abs(value) < 1e-4;
  const text = isTiny ? value.toExponential(1) : value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: digits });
  return text.replace("-", "−").replace(/^−0$/, "0");
}
