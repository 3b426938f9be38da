// How arrows look: colours from the style sheet, so that there is one place for them; widths, dashes and heads by class.

import { CLASS_NAMES } from "../data/constants.js";

export const LINE_WIDTHS = [1.4, 1.4, 0.9, 3, 2, 1.3, 2.4];
export const LINE_DASHES = [[], [], [], [], [6, 4], [2, 3], []];
export const HEADS = [8, 8, 6, 11, 8, 7, 10];
const FONT = "system-ui, sans-serif";
const LARGE_SCREEN = "(min-width: 2600px)"; // as in the style sheet
const large = typeof matchMedia === "undefined" ? null : matchMedia(LARGE_SCREEN); // undefined in unit tests

/** By how much texts are larger on a large screen. */
export const textScale = () => (large && large.matches ? 1.4 : 1);
export const font = (size, weight = "") => `${weight} ${size * textScale()}px ${FONT}`.trim();

/** The theme that is shown. */
export const currentTheme = () => document.documentElement.dataset.theme || "light";

/** The colours of the theme that is shown. */
export const palette = { classes: [], ink: "", faint: "", grid: "", lane: "", paper: "", band: "", accent: "", slow: "", atOnce: "", background: "" };

/** Read the colours anew, after a change of the theme. */
export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  Object.assign(palette, {
    classes: CLASS_NAMES.map((name) => colour("--arrow-" + name)),
    ink: colour("--ink"),
    faint: colour("--ink-faint"),
    grid: colour("--grid"),
    lane: colour("--lane"),
    paper: colour("--paper"),
    band: colour("--band"),
    accent: colour("--accent"),
    slow: colour("--slow"),
    background: colour("--background"),
    atOnce: colour("--at-once"),
  });
}
