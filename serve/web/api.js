/** The calls of the HTTP interface: JSON in and out, one kind of error, the key asked for when it is missing. */

import { h, refill } from "./dom.js";

const KEY_NAME = "cast_ray.key";
const LONGEST_PAUSE_MS = 10_000;

/** What the server refused, or that it does not answer; `message` is a sentence for people. */
export class ApiError extends Error {
  constructor(status, { code, message, field }) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field ?? null;
  }
}

export const getJson = (path, query) => call("GET", path, { query });
export const postJson = (path, body) => call("POST", path, { body });
export const remove = (path) => call("DELETE", path, {});

async function call(method, path, { query, body }) {
  const response = await send(method, path, { query, body });
  return response.status === 204 ? null : response.json();
}

/** Return the response to a call; ask for the key as long as the server wants one. */
async function send(method, path, { query, body, headers = {}, signal }) {
  for (;;) {
    const response = await reach(method, address(path, query), { body, headers, signal });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401 || !(await askForKey(error))) throw error;
  }
}

async function reach(method, url, { body, headers, signal }) {
  const key = sessionStorage.getItem(KEY_NAME);
  const all = { Accept: "application/json", ...headers };
  if (key) all.Authorization = `Bearer ${key}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  try {
    return await fetch(url, { method, headers: all, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", message: "The server does not answer. Start it again, or look at your connection, and try once more." });
  }
}

function address(path, query) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

async function errorOf(response) {
  try {
    return new ApiError(response.status, (await response.json()).error);
  } catch {
    const message = `The server answered ${response.status} without saying why. Try once more.`;
    return new ApiError(response.status, { code: "no_reason", message });
  }
}

let asking = null;

/** Ask for the key in a dialog; several calls share one. Return whether a key was given. */
function askForKey(error) {
  asking ??= keyFromDialog(error).finally(() => { asking = null; });
  return asking;
}

function keyFromDialog(error) {
  const dialog = document.getElementById("key-dialog");
  const input = dialog.querySelector("input");
  refill(dialog.querySelector(".error"), error.code === "key_wrong" ? h("span", {}, error.message) : null);
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const isGiven = dialog.returnValue === "use" && input.value.trim() !== "";
      if (isGiven) sessionStorage.setItem(KEY_NAME, input.value.trim());
      resolve(isGiven);
    }, { once: true });
  });
}

/**
 * Follow an episode: `onTurn(turn)` for each turn behind `after`, then `onEnd(episode)`.
 *
 * Not an EventSource, which cannot send the key. A broken connection is taken up again behind the
 * last turn that arrived; `onPause(isPaused)` says when.
 */
export async function followEpisode(id, { after, onTurn, onEnd, onPause, signal }) {
  let last = after;
  let pauseMs = 500;
  const take = (event) => {
    if (event.name === "end") onEnd(JSON.parse(event.data));
    if (event.name === "turn") {
      const turn = JSON.parse(event.data);
      last = event.id === "" ? turn.turn : event.id;
      pauseMs = 500;
      onTurn(turn);
    }
    return event.name === "end";
  };
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream" };
      if (last !== null) headers["Last-Event-ID"] = String(last);
      const response = await send("GET", `api/episodes/${encodeURIComponent(id)}/events`, { headers, signal });
      onPause(false);
      if (await readEvents(response, take)) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    }
    onPause(true);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
  }
}

/** Give each server-sent event to `take` until it answers true; false where the stream ends before. */
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    left = (left + value).replaceAll("\r\n", "\n");
    const blocks = left.split("\n\n");
    left = blocks.pop();
    for (const block of blocks) {
      if (take(parsedEvent(block))) {
        await reader.cancel();
        return true;
      }
    }
  }
}

function parsedEvent(block) {
  const event = { name: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue; // a comment, such as the ping
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "event") event.name = value;
    if (name === "id") event.id = value;
    if (name === "data") event.data += event.data ? `\n${value}` : value;
  }
  return event;
}
