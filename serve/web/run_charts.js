/** The charts of a run, in sections: of the report and of the page. */

import { Chart } from "./chart.js";
import { h } from "./dom.js";

const STYLES = ["a", "b", "c", "d"];
const TIME = ["generation", "learner", "sync", "checkpoint", "validation", "other"];
const MOST_STALE = 3;

/**
 * Sections of charts. A chart is the name of a metric, or several of one unit: `{title, of: {name: metric}, text}`;
 * `build` makes its series where they are no column. `alone` is added to the caption if the run has a comparison
 * run (`cast-ray train --outcome-alone`). What was not measured is left out.
 */
const SECTIONS = [
  {
    id: "learning", title: "Learning", isLarge: true, charts: [
      {
        title: "Success", of: { training: "success", validation: "validation_success", "outcome alone": "outcome_alone" },
        text: "Training: the step’s episodes, at temperature 1. Validation: boards that are never trained on, at the evaluation’s temperature.",
        alone: "Outcome alone: validation of a run from the same start without the solver’s credit.",
      },
      { title: "Turns by the solver", of: { progress: "progress_fraction", harmful: "harmful_fraction" }, text: "Progress lowered the cost-to-go; a harmful turn raised it or made it infinite.", needs: "credit" },
      { title: "Groups by outcome", build: groups, isWide: true, text: "Where all attempts of a group end alike, every outcome advantage is 0 and only the turns’ credit remains." },
    ],
  },
  {
    id: "episodes", title: "Episodes and turns", charts: [
      "reward_mean", { metric: "shifted_advantage_mean", needs: "credit" }, "turns_mean", { metric: "lost_fraction", hidesZero: true }, "ineffective_fraction", "invalid_fraction", "tokens_per_s",
    ],
  },
  {
    id: "time", title: "Time", charts: [
      { title: "Seconds of each step", build: time, isWide: true, unit: "seconds", text: "Solvers and environments work while the engine generates." },
    ],
  },
  {
    id: "rollouts", title: "Rollouts", charts: [
      { title: "Age of the trained tokens", build: ages, isWide: true, text: "Share of tokens by the number of steps between the weights that wrote them and those that they trained." },
      { title: "Busy engines", build: engines, text: "Share of the step’s time with a request running." },
      { title: "Waiting requests", of: { mean: "engine_queue_mean", largest: "engine_queue_max" }, text: "Requests that wait in an engine for a slot, over engines and seconds." },
      "seconds_queueing", "seconds_long_tail", "waiting_fraction",
      { title: "Cache hits", of: { prefixes: "prefix_hit_fraction", solvers: "oracle_hit_fraction" }, text: "Share of prompt tokens in the engines’ prefix caches, and of look-ups whose solver was in an oracle’s cache." },
      { title: "Memory", of: { driver: "memory_driver_mib", environment: "memory_environment_mib", oracle: "memory_oracle_mib", engine: "memory_engine_mib" }, text: "Resident memory of the largest process of each kind at the end of the step." },
      { title: "Played or sent again", of: { "groups lost": "lost_groups", retries: "engine_retries", overflows: "engine_overflows" }, hidesZero: true, text: "Groups lost with an actor; requests whose engine failed; episodes that moved to another engine because theirs was full." },
    ],
  },
  {
    id: "health", title: "Health of the learner and the weights", charts: [
      "loss", "grad_norm", "clip_fraction", "entropy", "logprob_abs_diff", "logprob_abs_diff_max", "rollout_kl", "rollout_clip_fraction",
      { metric: "kl", hidesZero: true }, { metric: "skipped_updates", hidesZero: true },
    ],
  },
];

/**
 * Return `[{id, title, element, charts}, …]` of the sections that have a chart.
 *
 * `run` is `{columns, metrics, groups, is_asynchronous, has_credit}`: values by metric and step (null = not
 * measured), and `{label, unit, text}` of each metric.
 */
export function runCharts(run, options = {}) {
  return SECTIONS.map(({ id, title, charts: wanted, isLarge }) => {
    const charts = wanted.map((entry) => chartOf(run, entry, options)).filter((found) => found !== null);
    const grid = h("div", { class: isLarge ? "charts large" : "charts" }, charts.map(({ figure }) => figure));
    return { id, title, element: grid, charts: charts.map(({ chart }) => chart) };
  }).filter(({ charts }) => charts.length);
}

function chartOf(run, entry, options) {
  const wanted = typeof entry === "string" ? { metric: entry } : entry;
  const { metric, needs, hidesZero } = wanted;
  if (needs === "credit" && run.has_credit === false) return null;
  const told = metric ? run.metrics[metric] : wanted;
  if (!told) return null;
  const of = metric ? { [told.label]: metric } : wanted.of;
  const spec = wanted.build ? wanted.build(run) : { lines: linesOf(run, of) };
  const series = spec && (spec.lines ?? spec.parts).filter(({ points }) => points.some(([, y]) => y !== null && !(hidesZero && y === 0)));
  if (!series?.length) return null;
  const unit = wanted.unit ?? (of ? run.metrics[Object.values(of)[0]]?.unit : "share") ?? "";
  const title = metric ? told.label : wanted.title;
  const chart = new Chart({ label: title, x: "step", unit, ...spec }, options);
  const text = [told.text, run.columns.outcome_alone && wanted.alone].filter(Boolean).join(" ");
  return { chart, figure: figureOf(title, text, chart.element, wanted.isWide) };
}

/** Return a chart with its texts. */
export function figureOf(title, text, element, isWide = false) {
  return h("figure", { class: isWide ? "card metric wide" : "card metric" }, h("h3", {}, title), element, h("figcaption", {}, text));
}

function linesOf({ columns }, of) {
  return Object.entries(of).filter(([, metric]) => columns[metric]).map(([name, metric], place) => ({
    name, style: STYLES[place], points: columns.step.map((step, row) => [step, columns[metric][row]]),
  }));
}

function groups({ groups: counts }) {
  if (!counts?.length) return null;
  const part = (name, style, field) => ({ name, style, points: counts.map((one) => [one.step, one[field]]) });
  return { unit: "groups", parts: [part("all solved", "part-a", "all_solved"), part("mixed", "part-none", "mixed"), part("none solved", "part-b", "none_solved")] };
}

/** How a step's wall time divides; steps that were only learned again have none. */
function time({ columns, time: parts }) {
  if (!parts) return null;
  return { parts: TIME.map((name) => ({ name, style: `time-${name}`, points: columns.step.map((step, row) => [step, parts[name][row]]) })) };
}

function ages({ columns }) {
  const counts = columns.staleness_tokens ?? [];
  const oldest = Math.max(0, ...counts.map((tokens) => tokens.findLastIndex((number) => number > 0)));
  if (!oldest) return null;
  const last = Math.min(oldest, MOST_STALE);
  const share = (tokens, age) => {
    const total = tokens.reduce((sum, number) => sum + number, 0);
    const own = age === last ? tokens.slice(age).reduce((sum, number) => sum + number, 0) : tokens[age] ?? 0;
    return total ? own / total : null;
  };
  const name = (age) => `${["current weights", "1 step behind"][age] ?? `${age} steps behind`}${age === last && oldest > last ? " or more" : ""}`;
  return {
    parts: Array.from({ length: last + 1 }, (_, age) => ({ name: name(age), style: `stale-${age}`, points: columns.step.map((step, row) => [step, share(counts[row], age)]) })),
  };
}

/** A line an engine, or of many engines the extremes. */
function engines({ columns }) {
  const shares = columns.engine_busy_fractions;
  if (!shares) return null;
  const number = Math.max(...shares.map((row) => row.length));
  const known = shares.map((row) => row.filter((share) => share !== null));
  const line = (name, place, value) => ({ name, style: STYLES[place], points: columns.step.map((step, row) => [step, known[row].length ? value(row) : null]) });
  if (number <= STYLES.length) return { lines: Array.from({ length: number }, (_, engine) => line(`engine ${engine}`, engine, (row) => shares[row][engine] ?? null)) };
  const mean = (row) => known[row].reduce((sum, share) => sum + share, 0) / known[row].length;
  return { lines: [line("busiest", 0, (row) => Math.max(...known[row])), line("mean", 1, mean), line("idlest", 2, (row) => Math.min(...known[row]))] };
}
