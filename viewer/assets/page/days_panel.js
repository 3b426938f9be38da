// What stands around the picture of days: choices, the list of slow minutes, what the summary of a period knows.

import { momentText } from "../data/calendar.js";
import { fetchJson } from "../data/server.js";
import { duration } from "../data/time.js";
import { byId, element, fillParts } from "./elements.js";

const LISTED = 40;

/** Fill a choice, and keep what is chosen. @param {string} id @param {[string, string][]} options  value and text */
export function fillChoice(id, options, chosen) {
  byId(id).replaceChildren(...options.map(([value, text]) => {
    const option = element("option", text);
    option.value = value;
    option.selected = value === chosen;
    return option;
  }));
}

/** The slowest minutes, the worst first; a click goes to one. */
export function fillWorst(worst, act) {
  const box = byId("days-worst"), list = element("ol");
  for (const each of worst.slice(0, LISTED)) {
    const item = element("li"), button = element("button", "", "link");
    button.append(element("b", momentText(each.at)), element("span", `${each.words}: p99 ${duration(each.p99)}, usually ${duration(each.usual)}`, "hint"));
    button.addEventListener("click", () => act(each));
    item.append(button);
    list.append(item);
  }
  const more = worst.length > LISTED ? [element("p", `and ${worst.length - LISTED} more: step through all with n`, "hint")] : [];
  const none = "No minute with at least 20 requests of a class was twice as slow as usual for that class.";
  box.replaceChildren(element("h2", "Slow minutes"), ...(worst.length ? [list, ...more] : [element("p", none, "hint")]));
}

/** What is known of a period; of none, nothing. @param {string | null} name @param {() => boolean} stillWanted */
export async function showPeriod(name, stillWanted) {
  if (name === null) return byId("days-period").replaceChildren();
  const trees = await fetchJson(`api/series/periods/${name}`).catch((error) => [["p", {}, [error.message]]]);
  if (stillWanted()) fillParts({ "days-period": trees });
}
