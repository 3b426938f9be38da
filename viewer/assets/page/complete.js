// What the last word of a search may become: a list below its box, which the server fills as one types.

import { fetchJson } from "../data/server.js";

const LIST = "search-words", PAUSE_MS = 120;
let timer = 0, asked = "";

/** Fill the list of every box that has it. @param {() => string} [base] what stands before the server's paths */
export function startCompletion(base = () => "") {
  for (const kind of ["input", "focusin"])
    document.addEventListener(kind, (event) => {
      const box = event.target;
      if (!(box instanceof HTMLInputElement) || box.getAttribute("list") !== LIST) return;
      clearTimeout(timer);
      timer = setTimeout(() => complete(box, base()), PAUSE_MS);
    });
}

/** @param {HTMLInputElement} box @param {string} base */
async function complete(box, base) {
  const text = (asked = box.value);
  const words = await fetchJson(`${base}api/search/words?q=${encodeURIComponent(text)}`).catch(() => []);
  const list = document.getElementById(LIST);
  if (text !== asked || box.value !== text || !list) return;
  list.replaceChildren(...words.map((word) => {
    const option = document.createElement("option");
    option.value = word.text;
    option.label = word.meaning ? `${word.text}  ${word.meaning}` : word.text;
    return option;
  }));
}
