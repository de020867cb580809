/** A running or finished episode of this server: watched, or played by a person. */

import { ApiError, followEpisode, getJson, postJson, remove } from "./api.js";
import { announce, h, refill } from "./dom.js";
import { errorBox } from "./forms.js";
import { steer } from "./human.js";
import { optimalLine } from "./optimal_line.js";
import { Player } from "./player.js";

const PLAYERS = { agent: "The agent", solver: "The solver", human: "You" };

/** Show the episode `id` in `place`; return a function that ends it. */
export async function showEpisode(place, { id }) {
  const episode = await getJson(`api/episodes/${encodeURIComponent(id)}`);
  const player = new Player(episode, { optimalLine });
  const notice = h("div", { class: "notices" });
  const ending = new AbortController();
  refill(place, heading(episode), notice, player.element);
  let steering = null;
  if (episode.status === "playing") {
    if (episode.player === "human") steering = letPersonPlay(player, notice);
    else watch(player, notice, ending.signal);
  }
  if (episode.player !== "human") player.below.append(stopButton(player, notice, ending));
  return () => {
    ending.abort();
    steering?.stop();
    player.close();
  };
}

function heading(episode) {
  const who = episode.player === "agent" && episode.model ? `${PLAYERS.agent} (${episode.model})` : PLAYERS[episode.player];
  const tier = episode.tier ? `, ${episode.tier}` : "";
  const again = `#/play/${episode.game}${episode.tier ? `?tier=${encodeURIComponent(episode.tier)}&seed=${episode.seed}` : ""}`;
  return h("div", { class: "heading" },
    h("h1", {}, who, h("span", { class: "soft" }, ` ${episode.player === "human" ? "play" : "plays"} ${gameTitle(episode.game)}${tier}`)),
    h("div", { class: "heading-links" },
      episode.tier ? h("a", { class: "button", href: again }, "This board again") : null,
      h("a", { class: "button", href: `#/play/${episode.game}` }, "New board")));
}

/** Return the title of a game from its name. */
export function gameTitle(name) {
  const short = name.split(":").pop().split("@")[0]; // of path/file.py:Class@digest
  return short.split("_").map((word) => word[0].toUpperCase() + word.slice(1)).join(" ");
}

function stopButton(player, notice, ending) {
  const button = h("button", { type: "button", class: "quiet", hidden: player.episode.status === "over" }, "Stop the episode");
  button.addEventListener("click", async () => {
    button.disabled = true;
    ending.abort(); // the server forgets the episode: nothing more will come
    try {
      await remove(`api/episodes/${encodeURIComponent(player.episode.id)}`);
      player.take({ ...player.episode, status: "over", end_reason: "cancelled" });
    } catch (error) {
      refill(notice, errorBox(error));
    }
    button.hidden = true;
  });
  player.whenOver = () => { button.hidden = true; };
  return button;
}

function watch(player, notice, signal) {
  const onTurn = (turn) => {
    const { episode } = player;
    if (turn.turn < episode.turns.length) return; // came again behind a broken connection
    player.take({ ...episode, turns: [...episode.turns, turn], board_now: turn.board_after, analysis: null });
  };
  const onEnd = (episode) => {
    player.take(episode);
    player.whenOver?.();
  };
  const onPause = (isPaused) => refill(notice, isPaused ? h("p", { class: "notice" }, "The connection broke; taking it up again …") : null);
  const after = player.last ? player.last - 1 : null;
  followEpisode(player.episode.id, { after, onTurn, onEnd, onPause, signal })
    .catch((error) => refill(notice, errorBox(error)));
}

/** Send a person's actions one after another, whatever their haste. */
function letPersonPlay(player, notice) {
  const path = `api/episodes/${encodeURIComponent(player.episode.id)}`;
  let last = Promise.resolve();
  const steering = steer(player, (action) => {
    last = last.then(() => playOne(action)).catch((error) => refused(error));
  });
  const playOne = async (action) => {
    if (player.episode.status === "over") return;
    const turn = await postJson(`${path}/actions`, { action });
    refill(notice);
    const { episode } = player;
    player.take({ ...episode, turns: [...episode.turns, turn], board_now: turn.board_after, analysis: null });
    steering.refresh();
    player.take(await getJson(path)); // the end, and what the new board is worth
    if (player.episode.status === "over") finish();
  };
  const refused = (error) => {
    if (!(error instanceof ApiError)) throw error;
    refill(notice, errorBox(error));
    announce(error.message);
    player.show();
  };
  const finish = () => {
    steering.stop();
    steering.element.remove();
    help.remove();
  };
  const help = h("p", { class: "help" }, steering.help);
  player.below.append(steering.element, help);
  return steering;
}
