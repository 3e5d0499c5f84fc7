// The state line: is it this cache, what is wrong, and since when?

import { $, make, say } from "./dom.js";
import { span, time } from "./format.js";

/** Word and mark of each state. The mark has a shape of its own, for readers who see no colours. */
const STATES = {
  serving: ["●", "serving"],
  degraded: ["▲", "degraded"],
  failing: ["▲", "serving"],
  starting: ["◆", "not ready"],
  stopping: ["■", "stopping"],
  silent: ["○", "no news"],
  token: ["▲", "token needed"],
  loading: ["○", "connecting…"],
};

/** What holds, and what visitors notice. */
const REASONS = {
  "tier-bypassed": (name) => [`${name} is bypassed`, "It fails. Requests skip it; memory and the origin answer."],
  "tier-read-only": (name) => [`${name} rejects writes`, "What it has is served; new responses are not kept there."],
  "fallback-server": (name) => [`${name} uses a fallback server`, "The nearest server does not answer."],
  "disk-failing": (name) => [`${name} cannot be written`, "It is full or fails. Memory and the origin answer."],
  "bus-lost": (name) => [`purges of other instances do not arrive (${name})`, "Purged responses may be served for a while."],
  "purges-waiting": () => ["purges wait to be sent to other instances", "The others may still serve purged responses."],
  "leases-off": (name) => [`loads are not shared with other instances (${name})`, "Each instance asks the origin itself."],
  "origin-unusable": (name) => [`origin server ${name} gets no requests`, "It fails or is unhealthy; the other servers answer."],
  "certificate-overdue": (name) => [`the certificate of ${name} is missing or expires soon`, "Renewal fails; see the log."],
};

/** What a state means for clients, and what to do next. */
const MEANINGS = {
  starting: "Load balancers are told to send no requests. /readyz names the cause.",
  stopping: "A stop signal came. Requests in progress end, and then the process exits.",
  silent: "Clients may still get responses: only this page is known to be cut off. Request a page of the site, then look at the process.",
};

const describe = ({ because, name }) => (REASONS[because] ?? (() => [`${because} ${name}`, ""]))(name);

/** Sites whose circuit breaker is not closed. */
function failingOrigins(origins) {
  const failing = origins.filter(({ breaker }) => breaker === "open" || breaker === "half-open");
  return [...new Set(failing.map(({ site }) => site))];
}

/** Shows a state and a short text after it. */
export function showState(state, more = "") {
  const [mark, word] = STATES[state];
  const line = $("state");
  line.dataset.state = state;
  say(line.querySelector(".mark"), mark);
  say($("state-text"), more ? `${word}${more}` : word);
  document.title = state === "serving" ? "forebay" : `${mark} ${word} – forebay`;
}

/** Shows what the state means, and the parts that are wrong. */
function showReasons(state, items) {
  const all = MEANINGS[state] ? [make("li", {}, MEANINGS[state]), ...items] : items;
  $("reasons").hidden = all.length === 0;
  $("reasons").replaceChildren(...all);
}

/** Shows that the cache does not answer. The tables keep what it told last. */
export function showSilence(seconds) {
  showState("silent", ` for ${span(seconds)}: the admin listener does not answer`);
  showReasons("silent", []);
}

/** Shows what an event tells about the cache. */
export function showHealth(event, hasTraffic) {
  const state = event.state === "ready" ? "serving" : event.state;
  const [first, ...others] = event.reasons;
  let more = hasTraffic ? "" : ", no traffic yet";
  if (first) {
    more = `: ${describe(first)[0]} since ${time(new Date(first.since))}`;
    if (others.length > 0) more += `, and ${others.length} more`;
  }
  const failing = failingOrigins(event.origins);
  if (!first && failing.length > 0) {
    more = `, but the origin of ${failing.join(", ")} fails`;
  }
  const shown = state === "serving" && failing.length > 0 ? "failing" : state;
  showState(shown in STATES ? shown : "degraded", more);
  const items = event.reasons.map((reason) => {
    const [what, effect] = describe(reason);
    const since = new Date(reason.since);
    const ago = span(Math.max(0, event.t - since / 1000));
    return make("li", {}, make("b", {}, what), ` since ${time(since)} (${ago}). ${effect}`);
  });
  items.push(...failing.map((site) => make("li", {}, make("b", {}, `the origin of ${site} fails`),
    ". The circuit breaker holds requests back: visitors get stored responses, or errors.")));
  showReasons(state, items);
  const instances = event.instances ? `${event.instances} instance${event.instances === 1 ? "" : "s"} · ` : "";
  say($("facts"), `${instances}up ${span(event.uptime_seconds)} · ${event.version}`);
}
