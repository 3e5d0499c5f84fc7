// Tables of tiers and origin servers, and the list of warnings and purges.

import { $, make, row, say } from "./dom.js";
import { bytes, count, duration, percent, rate, time } from "./format.js";

const state = (word, isGood) => [word, isGood ? "good" : "trouble"];

function size({ bytes: used, limit_bytes: limit }) {
  if (used === null) return make("span", { class: "muted" }, "not known");
  const filled = make("i");
  filled.style.width = `${Math.min(100, (100 * used) / limit)}%`;
  const meter = make("span", { class: "meter", "aria-hidden": "true" }, filled);
  const unit = bytes(limit).split(" ")[1];
  const short = bytes(used).replace(` ${unit}`, "");
  return make("span", {}, `${short} of ${bytes(limit)}`, meter);
}

export function showTiers(store, tiers) {
  const rows = tiers.map((tier) => {
    const [hits, lookups, evictions] = ["hits", "lookups", "evictions"].map((name) => store.ofTier(tier.name, name));
    return row(
      tier.name, state(tier.state, tier.state === "ok"), [size(tier), "n"],
      [tier.entries === null ? "–" : count(tier.entries), "n"], [rate(lookups / store.seconds), "n"],
      [percent(hits, lookups), "n"], [duration(tier.read_p99_us === null ? NaN : tier.read_p99_us / 1000), "n"],
      [rate(evictions / store.seconds), "n"],
    );
  });
  $("tiers").replaceChildren(...rows);
}

/** State of a server: its own, or that of the circuit breaker of its site. */
function stateOf({ state: own, breaker }) {
  if (own !== "ok") return [own === "slow-start" ? "slow start" : own, false];
  if (breaker === "open") return ["circuit breaker open: no requests", false];
  return breaker === "half-open" ? ["circuit breaker tries again", false] : ["ok", true];
}

export function showOrigins(origins) {
  $("origins").replaceChildren(...origins.map((server) => {
    const { connections, connections_max: max, waiting } = server;
    const isFull = waiting > 0;
    return row(
      server.site, server.endpoint, state(...stateOf(server)),
      [`${count(connections)} of ${count(max)}`, "n"], [count(waiting), isFull ? "n trouble" : "n"],
    );
  }));
}

const FACTORS = [[0.5, "½ ×"], [1, "now"], [2, "2 ×"], [4, "4 ×"]];

/** Estimated share of hits for other sizes of memory. */
export function showCurve(curve) {
  if (!curve) return;
  $("curve").hidden = false;
  const { size, missing, ratios } = curve;
  $("curve-table").hidden = ratios === null;
  say($("curve-missing"), ratios === null ? `Estimates begin after ${count(missing)} further sampled requests.` : "");
  if (ratios === null) return;
  $("curve-rows").replaceChildren(...FACTORS.map(([factor, name], place) => {
    const points = 100 * (ratios[place] - ratios[1]);
    const change = factor === 1 ? "–" : `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(1)} points`;
    return row(`${name} (${bytes(size * factor)})`, [percent(ratios[place], 1), "n"], [change, "n"]);
  }));
}

export function showNotices(notices) {
  if (notices.length === 0) return;
  $("notices").replaceChildren(...notices.map(({ at, level, text }) => {
    const date = new Date(at);
    return make("li", { class: level }, make("time", { datetime: at }, time(date, true)), make("b", {}, level), text);
  }));
}
