// Cards: the numbers of the time span, and the newest second below them.

import { $, make, say } from "./dom.js";
import * as format from "./format.js";

const SERVED = ["hit", "stale", "fallback", "collapsed"];
const NOT_REFUSED = [...SERVED, "revalidated", "miss", "pass", "bypass", "rule", "error"];
const ALL = [...NOT_REFUSED, "refused"];

/** Share of errors from which on the card of errors is marked. */
const ERRORS_BAD = 0.01;

/** Each card: its label, and a function to its value, the text below it, and whether it is bad. */
const CARDS = [
  ["requests", ({ store }) => [format.count(store.sum(...ALL)), `in ${format.span(store.seconds)}`]],
  ["requests / s", ({ store, now }) => [format.rate(store.sum(...ALL) / store.seconds), `now ${format.rate(now(ALL))}`]],
  ["from cache", ({ store, now }) => [
    format.percent(store.sum(...SERVED), store.sum(...NOT_REFUSED)),
    `now ${format.percent(now(SERVED), now(NOT_REFUSED))}`,
  ]],
  ["p99 to head", ({ store, event }) => [format.duration(ms(event?.p99_us[store.span])), "all responses"]],
  ["errors / s", ({ store, now }) => {
    const [errors, all] = [store.sum("error"), store.sum(...NOT_REFUSED)];
    const isBad = errors > ERRORS_BAD * all;
    const share = errors > 0 && errors < 0.001 * all ? "< 0.1 % of all" : `${format.percent(errors, all)} of all`;
    const below = errors === 0 ? "none" : isBad ? `▲ ${share}` : share;
    return [format.rate(errors / store.seconds), below, isBad];
  }],
  ["origin fetches / s", ({ store, now }) => [format.rate(store.sum("loads") / store.seconds), `now ${format.rate(now(["loads"]))}`]],
  ["waiting", ({ store }) => [format.count(store.last("waiting") ?? NaN), "for a response"]],
  ["memory", ({ event }) => {
    const memory = event?.tiers.find((tier) => tier.name === "memory");
    if (!memory) return ["–", ""];
    return [format.bytes(memory.bytes), `of ${format.bytes(memory.limit_bytes)}`];
  }],
  ["sent / s", ({ store, now }) => [
    format.bytes(store.sum("body_bytes") / store.seconds), `now ${format.bytes(now(["body_bytes"]))}`,
  ]],
];

const ms = (micros) => (micros === null || micros === undefined ? NaN : micros / 1000);

export function makeCards() {
  $("cards").replaceChildren(...CARDS.map(([label]) => make("div", { class: "card" },
    make("dt", {}, label), make("dd", { class: "value" }, "–"), make("dd", { class: "sub" }, ""))));
}

/** Shows the numbers of `store`, and of the newest event. */
export function showCards(store, event) {
  const now = (names) => names.reduce((all, name) => all + (store.last(name) ?? NaN), 0) / store.step;
  const cards = $("cards").children;
  CARDS.forEach(([, of], place) => {
    const [value, sub, isBad] = of({ store, event, now });
    const [, shown, below] = cards[place].children;
    say(shown, value);
    say(below, sub ?? "");
    cards[place].classList.toggle("bad", isBad === true);
  });
}

/** True if the time span has a request. */
export const hasTraffic = (store) => store.sum(...ALL) > 0;
