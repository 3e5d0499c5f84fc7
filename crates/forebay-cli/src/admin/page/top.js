// Lists of the busiest URLs, tags and clients. Requests are counted while they are on the screen.

import { get } from "./api.js";
import { $, make, row } from "./dom.js";
import { bytes, count, duration } from "./format.js";

/** Milliseconds between two requests for the lists. */
const INTERVAL = 5000;

/** Maximum number of rows of a list. */
const ROWS = 8;

/** Titles of the lists, their columns, and the texts of their numbers. */
const LISTS = {
  requests: ["Most requests", "URL", "requests", count],
  bytes: ["Most bytes sent", "URL", "sent", bytes],
  load_seconds: ["Longest loads", "URL", "load time", (seconds) => duration(1000 * seconds)],
  misses: ["Loads by reason", "reason and URL", "loads", count],
  not_storable: ["Not storable", "reason and URL", "loads", count],
  tags: ["Tags by loads", "tag", "loads", count],
  clients: ["Clients", "client", "requests", count],
};

function table(name, rows) {
  const [title, subject, number, text] = LISTS[name];
  const head = make("tr", {}, make("th", { scope: "col" }, subject), make("th", { scope: "col", class: "n" }, number));
  const body = rows.slice(0, ROWS).map((values) => row(values.name, [text(values.count), "n"]));
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title });
  scroll.append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  return make("div", {}, make("h3", {}, title), scroll);
}

function show({ lists }) {
  const names = Object.keys(LISTS).filter((name) => lists[name]?.length > 0);
  const tables = names.map((name) => table(name, lists[name]));
  $("top-lists").replaceChildren(...(tables.length > 0 ? tables : [make("p", { class: "muted" }, "Nothing counted yet.")]));
}

let isStarted = false;

/** Asks for the lists while their panel is on the screen, unless `isPaused`. Further calls do nothing. */
export function startTop(isPaused) {
  if (isStarted) return;
  isStarted = true;
  $("top").hidden = false;
  let isSeen = false;
  new IntersectionObserver(([entry]) => { isSeen = entry.isIntersecting; }).observe($("top"));
  setInterval(() => {
    if (isSeen && !isPaused() && document.visibilityState === "visible") get("top").then(show, () => {});
  }, INTERVAL);
}
