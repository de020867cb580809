/** One episode to look at: board, controls, curve, the turn's text and the list of turns. */

import { announce, h, isOnControl, isTyping, refill } from "./dom.js";
import { createBoard } from "./board_svg.js";
import { CostCurve } from "./curve.js";
import { icon } from "./icons.js";
import { drawOverlay, overlaySwitches } from "./overlay.js";
import { TurnList } from "./turn_list.js";
import { turnPanel } from "./turn_panel.js";
import { factsOf } from "./games.js";
import { costText, endWords, turnGrade } from "./wording.js";

/** Milliseconds between two turns, and what that is called. */
const SPEEDS = { 1600: "½×", 800: "1×", 400: "2×", 160: "5×" };

/**
 * Positions are 0 .. T: at position p the board is the one before turn p, at T the last one.
 * Where the episode goes on, the player follows it as long as it stands at its end.
 * `optimalLine(game, board)` asks for a line to the goal; `name`: of one player
 * among others, which shares its page with other content.
 */
export class Player {
  constructor(episode, { position = null, onSeek = () => {}, optimalLine = null, name = "" } = {}) {
    Object.assign(this, { episode, onSeek, optimalLine, name });
    this.board = createBoard(episode.game, episode.board);
    this.curve = new CostCurve(episode.game, (to) => this.seek(to));
    this.list = new TurnList((to) => this.seek(to));
    this.panel = h("div", { class: "turn-panel" });
    this.isPlaying = () => this.episode.player === "human" && this.episode.status === "playing";
    this.switches = overlaySwitches(episode.game, { isPlaying: this.isPlaying(), onChange: () => this.draw() });
    this.frame = h("div", { class: "board-frame" }, this.board.element);
    this.below = h("div", { class: "below-board" });
    this.status = h("p", { class: "position" });
    this.controls = this.buildControls();
    this.element = this.layout();
    this.position = Math.min(position ?? (episode.status === "over" ? 0 : episode.turns.length), episode.turns.length);
    this.keys = (event) => this.pressed(event);
    document.addEventListener("keydown", this.keys);
    this.show();
  }

  close() {
    document.removeEventListener("keydown", this.keys);
    this.pause();
  }

  layout() {
    const label = (what) => (this.name ? `${what}: ${this.name}` : what);
    const boardSide = h("section", { class: "card board-card", "aria-label": label("Board") },
      this.frame, this.below, this.controls, this.switches.element, this.curve.element);
    const turnSide = h("section", { class: "card turn-card", "aria-label": label("What was played") }, this.status, this.panel);
    const listSide = h("section", { class: "card list-card", "aria-label": label("All turns") }, h("h2", { class: "small" }, "Turns"), this.list.element);
    return h("div", { class: "watching" }, boardSide, h("div", { class: "side" }, turnSide, listSide));
  }

  buildControls() {
    const button = (name, symbol, act) => h("button", { type: "button", class: "icon", "aria-label": name, title: name, onclick: act }, symbol);
    this.slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Turn", oninput: () => this.seek(Number(this.slider.value)) });
    this.playButton = button("Play", icon("play"), () => this.toggle());
    this.speed = h("select", { "aria-label": "Speed", onchange: () => this.timer && this.play() },
      Object.entries(SPEEDS).map(([ms, name]) => h("option", { value: ms, selected: ms === "800" }, name)));
    return h("div", { class: "controls", role: "group", "aria-label": "Step through the episode" },
      button("First turn", icon("first"), () => this.seek(0)), button("One turn back", icon("back"), () => this.step(-1)), this.playButton,
      button("One turn on", icon("on"), () => this.step(1)), button("Last turn", icon("last"), () => this.seek(this.last)), this.slider, this.speed);
  }

  get last() {
    return this.episode.turns.length;
  }

  /** Take a newer state of the episode, or the same with more turns. */
  take(episode) {
    const isNews = episode.turns.length !== this.shownLast || episode.status !== this.shownStatus;
    if (this.position === this.shownLast) this.position = episode.turns.length;
    this.episode = episode;
    if (episode.status !== this.shownStatus) this.renewSwitches();
    if (isNews) this.say();
    this.show();
  }

  /** Who has finished playing wants to see what was hidden. */
  renewSwitches() {
    const old = this.switches.element;
    this.switches = overlaySwitches(this.episode.game, { isPlaying: this.isPlaying(), onChange: () => this.draw() });
    old.replaceWith(this.switches.element);
  }

  /** Say the newest turn, or the end, to those who listen. */
  say() {
    const turn = this.episode.turns.at(-1);
    if (this.episode.status === "over") announce(endWords(this.episode));
    else if (turn) announce(this.sentence(turn, this.last));
  }

  sentence(turn, number) {
    const { label } = turnGrade(turn, this.episode.game);
    const { letter } = factsOf(this.episode.game);
    const cost = turn.cost_after === null ? "" : ` ${letter} is now ${costText(turn.cost_after, this.episode.game)}.`;
    const isTold = !this.isPlaying() || this.switches.kinds.size > 0;
    return `Turn ${number}: ${turn.action || "no action"}.${turn.feedback ? ` ${turn.feedback}` : ""}${isTold ? `${label ? ` ${label}.` : ""}${cost}` : ""}`;
  }

  seek(position) {
    const to = Math.min(Math.max(position, 0), this.last);
    if (to === this.position) return;
    this.position = to;
    this.draw();
    this.onSeek(to);
    const turn = this.episode.turns[to];
    announce(turn ? this.sentence(turn, to + 1) : this.status.textContent);
  }

  step(by) {
    this.pause();
    this.seek(this.position + by);
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  play() {
    this.pause();
    if (this.position === this.last) this.seek(0);
    this.timer = setInterval(() => {
      this.seek(this.position + 1);
      if (this.position === this.last) this.pause();
    }, Number(this.speed.value));
    this.namePlayButton("Pause", "pause");
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.namePlayButton("Play", "play");
  }

  namePlayButton(name, symbol) {
    refill(this.playButton, icon(symbol));
    this.playButton.setAttribute("aria-label", name);
    this.playButton.title = name;
  }

  pressed(event) {
    if (isTyping(event) || this.isPlaying() || (event.defaultPrevented && !this.name) || !this.isMeant(event)) return;
    const act = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), Home: () => this.seek(0), End: () => this.seek(this.last),
      " ": isOnControl(event) ? null : () => this.toggle(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** On a page with other content, a player reacts only to the arrow keys, and only while it is in view. */
  isMeant(event) {
    const { top, bottom } = this.element.getBoundingClientRect();
    return !this.name || (event.key.startsWith("Arrow") && top < innerHeight && bottom > 0);
  }

  /** Draw all that depends on the episode, then what depends on the position. */
  show() {
    this.shownLast = this.last;
    this.shownStatus = this.episode.status;
    this.slider.max = this.last;
    this.list.update(this.episode);
    this.switches.element.hidden = ![this.episode, ...this.episode.turns].some(({ analysis }) => analysis);
    this.draw();
  }

  draw() {
    const { episode, position } = this;
    const turn = episode.turns[position];
    const isOver = episode.status === "over";
    this.board.update(turn ? turn.board : episode.board_now);
    this.drawOver(turn ? turn.analysis : episode.analysis, turn?.action);
    this.slider.value = position;
    this.slider.setAttribute("aria-valuetext", turn ? `turn ${position + 1} of ${this.last}` : "the end");
    this.status.textContent = turn ? `Turn ${position + 1} of ${this.last}` : isOver ? "The end" : `Turn ${this.last + 1} of at most ${episode.turn_budget}`;
    refill(this.panel, turnPanel(episode, position));
    this.list.mark(position);
    this.curve.update(this.costs(), position, isOver);
    this.frame.classList.toggle("solved", !turn && episode.end_reason === "solved");
  }

  /** Draw over the board; the optimal line comes later where it has to be asked for. */
  drawOver(analysis, chosen) {
    const { kinds } = this.switches;
    const { board } = this.board;
    const draw = (line) => drawOverlay(this.board, analysis && { ...analysis, line }, { kinds, chosen });
    draw(analysis?.line ?? null);
    if (!kinds.has("line") || !analysis || analysis.line || !this.optimalLine) return;
    this.optimalLine(this.episode.game, board)
      .then((line) => line && this.board.board === board && draw(line))
      .catch((error) => { this.status.textContent = error.message; });
  }

  costs() {
    const costs = this.episode.turns.map((turn) => turn.cost_before);
    const last = this.episode.turns.at(-1);
    return [...costs, last ? last.cost_after : this.episode.analysis?.cost ?? null];
  }
}
