// Binary messages of the server as typed arrays, and what is derived from them. Format: viewer/binary.py.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };
  T.NO_LANE = 0xffff;

  T.decode = function (buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    const message = { ...header };
    for (const { name, dtype, offset, length } of header.columns) {
      message[name] = new ARRAYS[dtype](buffer, 4 + size + offset, length);
    }
    if (message.pair) addLanes(message);
    return message;
  };

  // The lanes at both ends of the arrows, when asked for.
  function addLanes(arrows) {
    ["source", "target"].forEach((name, end) => {
      let lanes = null;
      const get = () => (lanes = lanes || Uint16Array.from(arrows.pair, (pair) => T.meta.pairs[pair][end]));
      Object.defineProperty(arrows, name, { get, enumerable: true });
    });
  }

  // Arrows with both ends known as drawn: a missing end is as far away as is typical for the pair of lanes.
  T.withEnds = function (arrows, meta) {
    const count = arrows.number.length;
    arrows.begin = new Float64Array(count);
    arrows.end = new Float64Array(count);
    arrows.byClass = T.CLASS_NAMES.map(() => []);
    for (let at = 0; at < count; at++) {
      const usual = meta.typical[arrows.pair[at]];
      const sent = arrows.sent[at], received = arrows.received[at];
      arrows.begin[at] = Number.isNaN(sent) ? received - usual : sent;
      arrows.end[at] = Number.isNaN(received) ? sent + usual : received;
      if (received < sent && !T.isProblem(arrows.cls[at])) arrows.cls[at] = T.CLASS.EARLY; // by the hosts' own clocks
      arrows.byClass[arrows.cls[at]].push(at);
    }
    return arrows;
  };

  // A page asks about the make of the trace that it shows, by this header (viewer/revisions.py); Dash's own requests too.
  const plainly = window.fetch.bind(window);
  T.fetchOf = function (made, url, options = {}) {
    const headers = new Headers(options.headers);
    if (made) headers.set("X-Twintap-Made", made);
    return plainly(url, { ...options, headers });
  };
  window.fetch = (url, options) => T.fetchOf(T.meta && T.meta.made, url, options);

  async function answered(url, options, made = T.meta && T.meta.made) {
    const response = await T.fetchOf(made, url, options);
    if (response.ok) return response;
    throw Object.assign(new Error(`the server answered ${response.status}`), { outdated: response.status === 409 });
  }

  T.fetchMessage = async (url, signal, made) => T.decode(await (await answered(url, { signal }, made)).arrayBuffer());
  T.fetchJson = async (url, signal, made) => (await answered(url, { signal }, made)).json();
})(window.twintap);
