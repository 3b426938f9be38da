// Colours from the page's style sheet, so that there is one place for them; classes as in collector.queries.ArrowClass.
"use strict";
window.twintap = window.twintap || {};

(function (T) {
  T.CLASS = { DATA: 0, HANDSHAKE: 1, ACK: 2, RETRANSMISSION: 3, LOST: 4, ONE_SIDED: 5, EARLY: 6 };
  T.CLASS_NAMES = ["data", "handshake", "ack", "again", "lost", "one-sided", "early"];
  T.LINE_WIDTHS = [1.4, 1.4, 0.9, 3, 2, 1.3, 2.4];
  T.LINE_DASHES = [[], [], [], [], [6, 4], [2, 3], []];
  T.HEADS = [8, 8, 6, 11, 8, 7, 10];
  T.PROBLEMS = [T.CLASS.RETRANSMISSION, T.CLASS.LOST, T.CLASS.EARLY]; // the worse, the later
  T.isProblem = (cls) => T.PROBLEMS.includes(cls);
  const FONT = "system-ui, sans-serif";
  const large = matchMedia("(min-width: 2600px)"); // as in the style sheet
  T.textScale = () => (large.matches ? 1.4 : 1);
  T.font = (size, weight = "") => `${weight} ${size * T.textScale()}px ${FONT}`.trim();

  // What is chosen by system preference or by hand.
  T.theme = () => document.documentElement.dataset.theme || "light";

  T.readPalette = function () {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    T.palette = {
      classes: T.CLASS_NAMES.map((name) => colour("--arrow-" + name)),
      ink: colour("--ink"),
      faint: colour("--ink-faint"),
      grid: colour("--grid"),
      lane: colour("--lane"),
      paper: colour("--paper"),
      band: colour("--band"),
      accent: colour("--accent"),
    };
    return T.palette;
  };

  T.setTheme = function (theme, remember) {
    document.documentElement.dataset.theme = theme;
    if (remember) localStorage.setItem("twintap-theme", theme);
    T.readPalette();
  };

  T.startTheme = function (onChange) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const chosen = () => localStorage.getItem("twintap-theme") || (system.matches ? "dark" : "light");
    T.setTheme(chosen(), false);
    system.addEventListener("change", () => {
      T.setTheme(chosen(), false);
      onChange();
    });
  };
  // Before anything is painted, so that a dark page does not flash white.
  if (typeof document !== "undefined") T.startTheme(() => T.themeChanged && T.themeChanged());
})(window.twintap);
