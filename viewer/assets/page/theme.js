// Light or dark: by the system's preference, or as it was chosen by hand.

import { notify } from "../data/events.js";
import { currentTheme, readPalette } from "../draw/palette.js";

const KEY = "twintap-theme";

function setTheme(theme, remember) {
  document.documentElement.dataset.theme = theme;
  if (remember) localStorage.setItem(KEY, theme);
  readPalette();
  notify("theme");
}

/** Follow the preference. Begins before anything is painted, so that a dark page does not flash white. */
export function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const preference = () => localStorage.getItem(KEY) || (system.matches ? "dark" : "light");
  setTheme(preference(), false);
  system.addEventListener("change", () => setTheme(preference(), false));
}

/** To the other theme, also when the page is opened again. */
export const switchTheme = () => setTheme(currentTheme() === "dark" ? "light" : "dark", true);
