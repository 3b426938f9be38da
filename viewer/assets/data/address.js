// The page's address holds the view, the selection and what is hidden, so that it can be reloaded and passed on.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  // Further parts of the address, of other files: name to {read(text or null), write() → text or ""}.
  T.addressParts = {};

  T.readAddress = function (meta) {
    const given = new URLSearchParams(location.hash.slice(1));
    const whole = (name) => (/^-?\d{1,16}$/.test(given.get(name) || "") ? Number(given.get(name)) : null);
    const from = whole("from"), to = whole("to"), request = whole("request"), hop = whole("hop");
    for (const [name, part] of Object.entries(T.addressParts)) part.read(given.get(name));
    const hidden = (given.get("hide") || "").split(",").filter((each) => /^[0-6]$/.test(each)).map(Number);
    return {
      view: from !== null && to !== null && to > from ? [from, to] : null,
      request: request !== null && request > 0 && request <= meta.roots ? request - 1 : null,
      hop: hop !== null && hop >= 0 && hop < meta.hops ? hop : null,
      hidden: new Set(hidden),
    };
  };

  // Requests are numbered from 1 where people see them.
  T.writeAddress = function (view, selection, hidden) {
    const parts = [`from=${Math.round(view.from)}`, `to=${Math.round(view.to)}`];
    if (selection.request !== null) parts.push(`request=${selection.request + 1}`);
    if (selection.hop !== null) parts.push(`hop=${selection.hop}`);
    if (hidden.size) parts.push(`hide=${[...hidden].sort().join(",")}`);
    for (const [name, part] of Object.entries(T.addressParts)) {
      const text = part.write();
      if (text) parts.push(`${name}=${encodeURIComponent(text)}`);
    }
    history.replaceState(null, "", "#" + parts.join("&"));
  };
})(window.twintap);
