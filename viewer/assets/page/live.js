// Follows a live trace: asks for its state, switches to the newest revision, and pauses when the user moves the view.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  const LIVE_MS = 1000, OTHERWISE_MS = 10000;
  const NEWEST = ""; // no make is named: the newest answers
  let following = true, state = null, busy = false, begun = false;

  const byId = (id) => document.getElementById(id);

  async function ask() {
    const answer = await T.fetchJson("api/live", undefined, NEWEST).catch(() => null);
    if (answer) {
      state = answer;
      if (state.live && following && state.made !== T.meta.made) await goOn();
    }
    showState(answer !== null);
    setTimeout(ask, state && state.live ? LIVE_MS : OTHERWISE_MS);
  }

  // The newest make; the view keeps its width and its distance from the end, and the whole stays the whole.
  async function goOn() {
    if (busy) return;
    busy = true;
    try {
      const meta = await T.fetchJson("api/meta", undefined, NEWEST);
      if (!following) return; // touched meanwhile
      if (meta.lanes.join("\n") !== T.meta.lanes.join("\n")) return location.reload(); // hosts came or went
      if (!(await T.renew(meta, ...nextView(meta), () => following))) return;
      window.dash_clientside.set_props("renewed", { data: meta.made });
      document.querySelectorAll("#legend [data-class]").forEach((button) => {
        button.querySelector("small").textContent = meta.classCounts[button.dataset.class];
      });
    } catch (error) {
      if (!error.outdated && error.name !== "AbortError") state = { ...state, trouble: "the viewer's server does not answer" };
    } finally {
      busy = false;
    }
  }

  function nextView(meta) {
    const { from, to } = T.state, whole = T.wholeView(T.meta);
    if (to - from >= 0.98 * (whole[1] - whole[0])) return T.wholeView(meta);
    const newest = T.wholeView(meta)[1];
    return [newest - (to - from), newest];
  }

  function showState(answered) {
    const shown = Boolean(state && state.live), box = byId("live-state");
    box.hidden = byId("live-button").hidden = !shown;
    if (!shown) return;
    byId("live-button").textContent = following ? "pause" : "follow";
    box.className = following && answered ? "following" : "";
    box.textContent = [following ? "live" : "paused", ...facts(answered)].join(", ");
  }

  function facts(answered) {
    const behind = state.behind_seconds, count = (number) => number.toLocaleString("en");
    if (!answered) return ["no answer from the server"];
    return [
      ...(behind === null ? [] : [`${behind < 10 ? behind.toFixed(1) : Math.round(behind)} s behind`]),
      ...(state.dropped_count ? [`${count(state.dropped_count)} dropped`] : []),
      ...(state.cut_count ? [`${count(state.cut_count)} segments left out`] : []),
      ...(state.trouble ? [state.trouble] : []),
    ];
  }

  async function toggle() {
    following = !following;
    if (following) T.banner("");
    if (following && state && state.made !== T.meta.made) await goOn();
    showState(true);
  }

  function touched() {
    if (!following || !state || !state.live) return;
    following = false;
    showState(true);
  }

  (T.parts = T.parts || []).push(() => {
    if (begun || !byId("live-state")) return;
    begun = true;
    T.actions.follow = toggle;
    T.keys[" "] = "follow";
    for (const place of ["timeline", "minimap-box", "panel", "packets"]) {
      byId(place).addEventListener("pointerdown", touched);
      byId(place).addEventListener("wheel", touched, { passive: true });
    }
    document.addEventListener("keydown", (event) => {
      const quiet = [" ", "t", "?", "Escape", "Tab", "Shift", "Control", "Alt", "Meta"];
      if (!quiet.includes(event.key)) touched();
    });
    if (T.meta.followed) ask();
  });
})(window.twintap);
