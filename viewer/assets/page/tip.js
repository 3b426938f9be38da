// The texts about a packet, under the cursor and in the panel. Texts of captures only ever become text nodes.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const ASK_AFTER_MS = 70; // resting on an arrow this long asks the server for its packets' fields

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  T.element = element;

  const place = (lane) => (lane === T.NO_LANE ? "an uncaptured host" : T.meta.lanes[lane]);

  // Lines that need no question to the server.
  T.arrowLines = function (arrows, at) {
    const again = arrows.attempt[at] > 1 ? `, attempt ${arrows.attempt[at]}` : "";
    const lines = [`${place(arrows.source[at])} → ${place(arrows.target[at])}`];
    const sent = arrows.sent[at], received = arrows.received[at];
    if (!Number.isNaN(sent)) lines.push(`sent ${T.exactTime(sent)}`);
    if (!Number.isNaN(received)) lines.push(`received ${T.exactTime(received)}`);
    if (arrows.request[at] >= 0) lines.push(`request #${arrows.request[at] + 1}`);
    const size = arrows.size[at] ? `, ${arrows.size[at].toLocaleString("en")} bytes` : "";
    return { title: T.meta.kinds[arrows.kind[at]] + again + size, lines };
  };

  T.Tip = class {
    constructor(box) {
      this.box = box;
      this.number = -1;
    }

    showArrow(arrows, at, x, y) {
      const number = arrows.number[at];
      if (number !== this.number) {
        this.number = number;
        const { title, lines } = T.arrowLines(arrows, at);
        this.box.replaceChildren(element("b", title), ...lines.map((line) => element("div", line)));
        clearTimeout(this.waiting);
        this.waiting = setTimeout(() => this.ask(number), ASK_AFTER_MS);
      }
      this.place(x, y);
    }

    showLines({ title, lines }, x, y) {
      this.number = -1;
      clearTimeout(this.waiting);
      this.box.replaceChildren(element("b", title), ...lines.map((line) => element("div", line)));
      this.place(x, y);
    }

    showBin(counts, x, y) {
      this.number = -1;
      clearTimeout(this.waiting);
      const total = counts.byClass.reduce((sum, each) => sum + each, 0);
      const named = counts.byClass
        .map((count, cls) => [count, cls])
        .filter(([count]) => count)
        .map(([count, cls]) => `${count.toLocaleString("en")} ${T.CLASS_NAMES[cls]}`);
      this.box.replaceChildren(
        element("b", `${total.toLocaleString("en")} packets in ${T.duration(counts.width)}`),
        element("div", `from ${T.exactTime(counts.from)}`),
        ...named.map((line) => element("div", line)),
        element("div", "zoom in to see each", "hint"),
      );
      this.place(x, y);
    }

    async ask(number) {
      const hop = await T.hop(number);
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
      clearTimeout(this.waiting);
      this.box.classList.remove("shown");
    }
  };

  // A hop in full, asked for once.
  const known = new Map();
  T.hop = async function (number) {
    if (!known.has(number)) {
      if (known.size > 500) known.clear();
      known.set(number, await T.fetchJson(`api/hops/${number}`).catch(() => null));
    }
    return known.get(number);
  };

  T.forgetHops = () => known.clear(); // another make of the trace numbers them anew

  function hopChildren(hop) {
    const children = [element("b", hop.title)];
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
  T.showPacket = async function (box, number) {
    if (number === null) return box.replaceChildren();
    const hop = await T.hop(number);
    if (!hop || T.state.selection.hop !== number) return;
    const heading = element("h3", "Packet");
    box.replaceChildren(heading, ...hopChildren(hop));
  };
})(window.twintap);
