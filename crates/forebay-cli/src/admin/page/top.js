// Lists of the busiest URLs, tags and clients. They are measured while they are on the screen.

import { get } from "./api.js";
import { $, make, row } from "./dom.js";
import { count } from "./format.js";

/** Milliseconds between two requests for the lists. */
const INTERVAL = 5000;

/** Maximum number of rows of a list. */
const ROWS = 8;

/** Table of a list of objects; the names of the first one are the columns. */
function table(name, rows) {
  const columns = Object.keys(rows[0]);
  const isNumber = (column) => typeof rows[0][column] === "number";
  const head = columns.map((column) => make("th", { scope: "col", class: isNumber(column) ? "n" : null }, column.replaceAll("_", " ")));
  const body = rows.slice(0, ROWS).map((values) => row(...columns.map((column) => {
    const value = values[column];
    return isNumber(column) ? [count(value), "n"] : [String(value ?? "–"), null];
  })));
  const title = name.replaceAll("_", " ");
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title });
  scroll.append(make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
  return make("div", {}, make("h3", {}, title), scroll);
}

function show(lists) {
  const full = Object.entries(lists).filter(([, rows]) => Array.isArray(rows) && rows.length > 0 && typeof rows[0] === "object");
  const tables = full.map(([name, rows]) => table(name, rows));
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
