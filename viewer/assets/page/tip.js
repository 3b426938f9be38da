// The texts about a packet, under the cursor and in the panel. Texts of captures only ever become text nodes.

import { CLASS_NAMES } from "../data/constants.js";
import { fetchHop } from "../data/hops.js";
import { hostText, withShownNames } from "../data/names.js";
import { lanesQuery, rowName, rowTable } from "../data/rows.js";
import { fetchJson } from "../data/server.js";
import { duration, exactTime } from "../data/time.js";
import { state, trace } from "../data/trace.js";
import { element } from "./elements.js";

const ASK_AFTER_MS = 70; // resting on an arrow this long asks the server for its packets' fields

const place = (lane) => hostText(lane, "an uncaptured host");

/** What a packet is, and of a WebSocket which messages begin in it: `data: text, ping`. */
export function kindText(arrows, at) {
  const bits = arrows.messages ? arrows.messages[at] : 0;
  const messages = trace.meta.messages.filter((_, bit) => bits & (1 << bit));
  return trace.meta.kinds[arrows.kind[at]] + (messages.length ? `: ${messages.join(", ")}` : "");
}

// Lines that need no question to the server.
export function arrowLines(arrows, at) {
  const again = arrows.attempt[at] > 1 ? `, attempt ${arrows.attempt[at]}` : "";
  const lines = [`${place(arrows.source[at])} → ${place(arrows.target[at])}`];
  const sent = arrows.sent[at], received = arrows.received[at];
  if (!Number.isNaN(sent)) lines.push(`sent ${exactTime(sent)}`);
  if (!Number.isNaN(received)) lines.push(`received ${exactTime(received)}`);
  if (arrows.request[at] >= 0) lines.push(`request #${arrows.request[at] + 1}`);
  const size = arrows.size[at] ? `, ${arrows.size[at].toLocaleString("en")} bytes` : "";
  return { title: kindText(arrows, at) + again + size, lines };
}

/** The box beside the pointer. */
export class Tip {
  x = 0;
  y = 0;
  bandKey = ""; // of the bin of a band that is shown
  known = { key: "", text: "" }; // the last that the server has answered about

  constructor(box) {
    this.box = box;
    this.number = -1;
  }

  showArrow(arrows, at, x, y) {
    const number = arrows.number[at];
    if (number !== this.number) {
      this.number = number;
      this.bandKey = "";
      const { title, lines } = arrowLines(arrows, at);
      this.box.replaceChildren(element("b", title), ...lines.map((line) => element("div", line)));
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.ask(number), ASK_AFTER_MS);
    }
    this.place(x, y);
  }

  showLines({ title, lines }, x, y) {
    this.number = -1;
    this.bandKey = "";
    clearTimeout(this.waiting);
    this.box.replaceChildren(element("b", title), ...lines.map((line) => element("div", line)));
    this.place(x, y);
  }

  /** @param {any} counts @param {BandBin | null} band */
  showBin(counts, band, x, y) {
    this.number = -1;
    clearTimeout(this.waiting);
    const key = (this.bandKey = band ? `${band.row} ${band.from} ${band.to} ${rowTable.version}` : "");
    const first = band ? element("b", key === this.known.key ? this.known.text : bandText(band)) : "";
    const total = counts.byClass.reduce((sum, each) => sum + each, 0);
    const named = counts.byClass
      .map((count, cls) => [count, cls])
      .filter(([count]) => count)
      .map(([count, cls]) => `${count.toLocaleString("en")} ${CLASS_NAMES[cls]}`);
    this.box.replaceChildren(
      first, ...(band ? [element("div", `within ${duration(band.to - band.from)} from ${exactTime(band.from)}`)] : []),
      element("b", `${total.toLocaleString("en")} packets in ${duration(counts.width)}`),
      element("div", `from ${exactTime(counts.from)}`),
      ...named.map((line) => element("div", line)),
      element("div", "zoom in to see each", "hint"),
    );
    this.place(x, y);
    if (band && band.requests && key !== this.known.key) this.waiting = setTimeout(() => this.askBand(band, key, first), ASK_AFTER_MS);
  }

  async askBand(band, key, line) {
    const path = `api/bands/at?lanes=${lanesQuery([band.row])}&from=${band.from}&to=${band.to}`;
    const served = await fetchJson(path).catch(() => null);
    if (!served || this.bandKey !== key) return;
    this.known = { key, text: servedText(band, served) };
    line.textContent = this.known.text;
  }

  async ask(number) {
    const hop = await fetchHop(number);
    if (hop && number === this.number) {
      this.box.replaceChildren(...hopChildren(hop));
      this.place(this.x, this.y);
    }
  }

  place(x, y) {
    [this.x, this.y] = [x, y];
    this.box.classList.add("shown");
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = x + 16 + width > innerWidth ? x - width - 12 : x + 16;
    const top = Math.min(y + 14, innerHeight - height - 8);
    this.box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }

  hide() {
    this.number = -1;
    this.bandKey = "";
    clearTimeout(this.waiting);
    this.box.classList.remove("shown");
  }
}

const requestsText = (count) => `${count.toLocaleString("en")} request${count === 1 ? "" : "s"}`;
const ratioText = (ratio) => `${ratio < 10 ? ratio.toFixed(1) : Math.round(ratio).toLocaleString("en")} × usual`;

/** What a bin of a band shows. @param {BandBin} band */
function bandText({ row, requests, atOnce, ratio }) {
  const name = rowName(rowTable.rows[row]);
  if (!requests) return `${name}: serves no request here`;
  const slow = ratio ? `, p99 about ${ratioText(ratio)}` : "";
  return `${name}: ${requestsText(requests)}${slow}, at most ${atOnce.toLocaleString("en")} at once`;
}

/** The same, exactly. @param {BandBin} band */
function servedText({ row }, { requests, at_once: atOnce, p99_ns: p99, ratio }) {
  const slow = ratio === null ? "nothing to compare with" : ratioText(ratio);
  return `${rowName(rowTable.rows[row])}: ${requestsText(requests)}, ${requests === 1 ? "" : "p99 "}${duration(p99)} (${slow}), at most ${atOnce.toLocaleString("en")} at once`;
}

function hopChildren(hop) {
  const children = [element("b", withShownNames(hop.title))];
  for (const section of hop.sections) {
    if (section.title) children.push(element("h4", section.title));
    if (!section.facts.length) continue;
    const table = element("table");
    for (const [name, value] of section.facts) {
      const row = table.insertRow();
      row.append(element("th", name), element("td", value));
    }
    children.push(table);
  }
  return children;
}

// The selected packet, in the panel; an answer that comes after another was selected, or none, is not shown.
export async function showPacket(box, number) {
  if (number === null) return box.replaceChildren();
  const hop = await fetchHop(number);
  if (!hop || state.selection.hop !== number) return;
  const heading = element("h3", "Packet");
  heading.append(" ", step("‹", "previous-packet", "Previous packet of this connection (,)"));
  heading.append(" ", step("›", "next-packet", "Next packet of this connection (.)"));
  box.replaceChildren(heading, ...hopChildren(hop));
}

function step(text, action, title) {
  const button = element("button", text, "small");
  button.dataset.action = action;
  button.title = title;
  return button;
}
