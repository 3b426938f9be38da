// Search: a query's hits one after the other, each selected and zoomed to. The server counts; the page knows one hit.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  let asked = "", at = -1, count = 0;

  const box = () => document.getElementById("search-text");
  const say = (text) => (document.getElementById("search-result").textContent = text);

  async function step(by) {
    const query = box().value.trim();
    if (!query) return forget();
    const wanted = query !== asked ? 0 : at + by;
    const path = `api/search?q=${encodeURIComponent(query)}&at=${count && query === asked ? (wanted + count) % count : 0}`;
    const answer = await T.fetchJson(path).catch(() => ({ count: 0, problem: "the server does not answer" }));
    if (box().value.trim() !== query) return;
    [asked, at, count] = [query, answer.at, answer.count];
    if (!answer.hit) return say(answer.problem || "nothing found");
    const { request, from_ns: from, to_ns: to, text } = answer.hit;
    say(`${(at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}: ${text}`);
    T.select(request, null);
    const room = Math.max(0.06 * (to - from), 1000);
    T.glide(from - room, to + room);
  }

  function forget() {
    [asked, at, count] = ["", -1, 0];
    say("");
  }

  T.addressParts.find = {
    read: (text) => (T.soughtFor = text || ""),
    write: () => asked,
  };

  (T.parts = T.parts || []).push(() => {
    T.actions["next-hit"] = () => step(1);
    T.actions["previous-hit"] = () => step(-1);
    T.actions.search = () => box().select();
    T.keys["/"] = "search";
    box().addEventListener("keydown", (event) => {
      if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") document.getElementById("arrows").focus();
    });
    box().addEventListener("input", () => box().value.trim() || forget());
    if (T.soughtFor) box().value = asked = T.soughtFor;
  });
})(window.twintap);
