// Search: a query's hits one after the other, each selected and zoomed to. The server counts; the page knows one hit.

import { addAddressPart } from "../data/address.js";
import { fetchJson } from "../data/server.js";
import { addAction } from "./actions.js";
import { byId } from "./elements.js";

let lastQuery = "", at = -1, count = 0, fromAddress = "";
/** @type {Timeline} */
let timeline;

const box = () => byId("search-text");
const say = (text) => (byId("search-result").textContent = text);

async function step(by) {
  const query = box().value.trim();
  if (!query) return forget();
  const wanted = query !== lastQuery ? 0 : at + by;
  const path = `api/search?q=${encodeURIComponent(query)}&at=${count && query === lastQuery ? (wanted + count) % count : 0}`;
  const answer = await fetchJson(path).catch(() => ({ count: 0, problem: "the server does not answer" }));
  if (box().value.trim() !== query) return;
  [lastQuery, at, count] = [query, answer.at, answer.count];
  if (!answer.hit) return say(answer.problem || "nothing found");
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
}

addAddressPart("find", {
  read: (text) => (fromAddress = text || ""),
  write: () => lastQuery,
});

/** Add the actions; a query of the address is put into the box, without searching yet. @param {Timeline} of */
export function startSearch(of) {
  timeline = of;
  addAction("next-hit", () => step(1));
  addAction("previous-hit", () => step(-1));
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
  if (fromAddress) box().value = lastQuery = fromAddress;
}
