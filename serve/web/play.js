/** The start of an episode: which game, which board, who plays. */

import { getJson, postJson } from "./api.js";
import { h, recalled, refill, remember } from "./dom.js";
import { createBoard } from "./board_svg.js";
import { choice, clearErrors, field, showError } from "./forms.js";
import { factsOf } from "./games.js";
import { costText } from "./wording.js";

/** Boards that "New board" draws from: numbers that people can read out. */
const MOST_SEEDS = 100_000;
/** Display names of the tiers that every game has. */
const LEVELS = { mini: "Small", "mini-unseen": "Small, harder", id: "Standard", unseen: "Harder" };
const PLAYERS = {
  human: ["You", "play by keys, mouse or touch"],
  solver: ["The solver", "plays an optimal line"],
  agent: ["The agent", "the language model that is served"],
};

/** Show the choice of a game and board in `place`. */
export async function showPlay(place, { game, query }) {
  const [about, { games }] = await Promise.all([getJson("api/about"), getJson("api/games")]);
  const chosen = games.find(({ name }) => name === game) ?? games[0];
  const setup = new Setup(about, games, chosen, query);
  refill(place, h("div", { class: "heading" }, h("h1", {}, "Play, or watch")), setup.element);
  await setup.draw();
  return () => {};
}

class Setup {
  constructor(about, games, game, query) {
    const tiers = game.tiers.map(({ name }) => name);
    const wanted = query.get("tier") ?? recalled(`tier.${game.name}`, null);
    this.game = game;
    this.tier = tiers.includes(wanted) ? wanted : tiers.find((name) => name === "id") ?? tiers[0];
    this.seed = query.get("seed") ?? "";
    const offered = Object.keys(PLAYERS).filter((name) => about.players.includes(name));
    const recalledPlayer = recalled("player", "human");
    this.player = offered.includes(recalledPlayer) ? recalledPlayer : offered[0];
    this.puzzle = null;
    this.offered = offered;
    this.preview = h("div", { class: "preview", "aria-live": "polite" });
    this.form = this.buildForm(games, about);
    this.element = h("div", { class: "setup" }, this.form,
      h("section", { class: "card preview-card", "aria-label": "Board" }, this.preview, h("details", { class: "fold rules" }, h("summary", {}, "Rules, as the model reads them"), h("p", {}, game.rules))));
  }

  buildForm(games, about) {
    const toGame = (name) => { location.hash = `#/play/${name}`; };
    return h("form", { class: "card setup-form", onsubmit: (event) => this.start(event), novalidate: true },
      choice("game", "Game", games.map(({ name, title }) => [name, title]), this.game.name, toGame),
      this.tierChoice(), this.seedField(), this.boardField(),
      choice("player", "Who plays", this.offered.map((name) => [name, ...PLAYERS[name]]), this.player, (name) => this.setPlayer(name)),
      this.agentFields(about),
      h("div", { class: "form-end" }, h("button", { type: "submit", class: "primary" }, "Start")));
  }

  tierChoice() {
    if (!this.game.tiers.length) return null;
    const label = ({ name, rows, cols, turn_budget: turns }) => [name, LEVELS[name] ?? name, `${name in LEVELS ? `${name}: ` : ""}${rows} × ${cols}, ${turns} turns`];
    return choice("tier", "Level", this.game.tiers.map(label), this.tier, (name) => {
      this.tier = name;
      remember(`tier.${this.game.name}`, name);
      this.draw();
    });
  }

  seedField() {
    this.seedInput = h("input", { name: "seed", type: "number", min: 0, step: 1, inputmode: "numeric", value: this.seed, placeholder: "random", onchange: () => this.draw() });
    const fresh = h("button", { type: "button", class: "fresh", onclick: () => { this.seedInput.value = ""; this.boardInput.value = ""; this.draw(); } }, "New board");
    const place = field("seed", "Seed", this.seedInput);
    place.classList.add("with-button");
    this.seedInput.after(fresh);
    return place;
  }

  boardField() {
    this.boardInput = h("textarea", { name: "board", rows: 7, spellcheck: "false", autocomplete: "off", oninput: () => this.pasted() });
    return h("details", { class: "fold" }, h("summary", {}, "Paste a board instead"), field("board", "Board, one line a row", this.boardInput, factsOf(this.game.name).hint));
  }

  agentFields(about) {
    this.temperature = h("input", { name: "temperature", type: "number", min: 0, max: 2, step: 0.1, value: 0 });
    this.delay = h("input", { name: "delay_ms", type: "number", min: 0, max: 2000, step: 100, value: recalled("delay", 500) });
    this.temperatureField = field("temperature", "Temperature", this.temperature, about.model ? `Model: ${about.model}` : null);
    this.delayField = field("delay_ms", "Pause between turns, ms", this.delay);
    const place = h("div", { class: "row" }, this.temperatureField, this.delayField);
    this.showAgentFields();
    return place;
  }

  setPlayer(name) {
    this.player = name;
    remember("player", name);
    this.showAgentFields();
  }

  showAgentFields() {
    this.temperatureField.hidden = this.player !== "agent";
    this.delayField.hidden = this.player === "human";
  }

  /** Wait until somebody has finished typing; what was shown before is not the board any more. */
  pasted() {
    this.puzzle = null;
    this.asked = null; // what is on its way is of the board before
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), 400);
  }

  /** Ask for the board that is described, and show it. */
  async draw() {
    const mine = (this.asked = Symbol("the newest question"));
    this.puzzle = null;
    clearTimeout(this.timer);
    clearErrors(this.form);
    const patience = setTimeout(() => refill(this.preview, h("p", { class: "soft" }, "Making a board …")), 250);
    try {
      const { puzzle, board, analysis } = await (this.boardInput.value.trim() ? this.pastedBoard() : this.generatedBoard());
      if (this.asked !== mine) return;
      this.puzzle = puzzle;
      this.showBoard(board, analysis);
    } catch (error) {
      if (this.asked !== mine) return;
      refill(this.preview, h("p", { class: "soft" }, "No board to show."));
      showError(this.form, error);
    } finally {
      clearTimeout(patience);
    }
  }

  async generatedBoard() {
    if (this.seedInput.value === "") this.seedInput.value = Math.floor(Math.random() * MOST_SEEDS);
    const puzzle = { game: this.game.name, tier: this.tier, seed: Number(this.seedInput.value) };
    const { board } = await postJson("api/boards", puzzle);
    return { puzzle, board, analysis: await postJson("api/solve", puzzle) };
  }

  async pastedBoard() {
    const puzzle = { game: this.game.name, board: this.boardInput.value.replace(/\s+$/, "") };
    const { board, ...analysis } = await postJson("api/solve", puzzle);
    return { puzzle, board, analysis };
  }

  showBoard(board, analysis) {
    const picture = createBoard(this.game.name);
    picture.update(board);
    const { letter, meaning, hides } = factsOf(this.game.name);
    const isKnown = analysis && analysis.cost !== null && analysis.cost !== undefined && !hides;
    refill(this.preview, h("div", { class: "board-frame" }, picture.element),
      isKnown ? h("p", { class: "soft" }, h("b", {}, `${letter} = ${costText(analysis.cost, this.game.name)}`), ` — ${meaning}`) : null);
  }

  async start(event) {
    event.preventDefault();
    if (!this.puzzle) await this.draw();
    if (!this.puzzle) return;
    const asked = { ...this.puzzle, player: this.player };
    if (this.player === "agent") asked.temperature = Number(this.temperature.value);
    if (this.player !== "human") {
      asked.delay_ms = Number(this.delay.value);
      remember("delay", asked.delay_ms);
    }
    clearErrors(this.form);
    try {
      const { id } = await postJson("api/episodes", asked);
      location.hash = `#/episode/${encodeURIComponent(id)}`;
    } catch (error) {
      showError(this.form, error);
    }
  }
}
