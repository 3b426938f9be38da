// Search: a query's hits one after the other, each selected and zoomed to. The server counts; the page knows one hit.

import { addAddressPart } from "../data/address.js";
import { fetchJson } from "../data/server.js";
import { state } from "../data/trace.js";
import { addAction } from "./actions.js";
import { startCompletion } from "./complete.js";
import { byId } from "./elements.js";

const NO_ANSWER = "the server does not answer";
let lastQuery = "", at = -1, count = 0, fromAddress = "";
/** @type {Timeline} */
let timeline;

// Show the packets of the requests that are found, or of all.
async function switchOnly() {
  const query = box().value.trim();
  if (state.only) return showOnly("");
  if (!query) return box().focus();
  if (await sayOnly(query)) showOnly(query);
}

// Say how many requests a search finds; whether any.
async function sayOnly(query) {
  const answer = await ask(query, 0);
  const text = answer.requests === 1 ? "its 1 request" : `its ${answer.requests.toLocaleString("en")} requests`;
  say(answer.problem || answer.alone || (answer.requests ? `only the packets of ${text}` : "no request is found"));
  return answer.requests > 0 && !answer.alone;
}

function showOnly(query) {
  timeline.showOnly(query);
  if (!query) say("");
  byId("search-only").setAttribute("aria-pressed", `${Boolean(query)}`);
}

const ask = (query, at) =>
  fetchJson(`api/search?q=${encodeURIComponent(query)}&at=${at}`).catch(() => ({ count: 0, requests: 0, problem: NO_ANSWER }));

const box = () => byId("search-text");
const say = (text) => (byId("search-result").textContent = text);

async function step(by) {
  const query = box().value.trim();
  if (!query) return forget();
  const wanted = query !== lastQuery ? 0 : at + by;
  const answer = await ask(query, count && query === lastQuery ? (wanted + count) % count : 0);
  if (box().value.trim() !== query) return;
  [lastQuery, at, count] = [query, answer.at, answer.count];
  if (!answer.hit) return say(answer.problem || "nothing found");
  if (state.only && state.only !== query && answer.requests) showOnly(answer.alone ? "" : query);
  const { request, from_ns: from, to_ns: to, text } = answer.hit;
  say(`${(at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}: ${text}`);
  timeline.select(request, null);
  const room = Math.max(0.06 * (to - from), 1000);
  timeline.glide(from - room, to + room);
}

/** @param {string} query */
function find(query) {
  forget();
  box().value = query;
  step(1);
}

function forget() {
  [lastQuery, at, count] = ["", -1, 0];
  say("");
  if (state.only && !box().value.trim()) showOnly("");
}

addAddressPart("find", {
  read: (text) => (fromAddress = text || ""),
  write: () => lastQuery,
});

/** Add the actions; a query of the address is put into the box, without searching yet. @param {Timeline} of */
export function startSearch(of) {
  timeline = of;
  startCompletion();
  addAction("next-hit", () => step(1));
  addAction("previous-hit", () => step(-1));
  addAction("only-hits", switchOnly, "u");
  addAction("search", () => box().select(), "/");
  box().addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") byId("arrows").focus();
  });
  box().addEventListener("input", () => box().value.trim() || forget());
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-find]") : null;
    if (button) find(button.getAttribute("data-find") || "");
  });
  if (state.only) {
    byId("search-only").setAttribute("aria-pressed", "true");
    fromAddress ||= state.only;
    sayOnly(state.only);
  }
  if (fromAddress) box().value = lastQuery = fromAddress;
}
