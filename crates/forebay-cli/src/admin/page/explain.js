// Explanation of a request, as lists of names and values.

import { make } from "./dom.js";

/** Element for a value of JSON; nothing for an empty one. */
function shown(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) {
    if (value.length === 0) return "none";
    return make("ol", {}, ...value.map((member) => make("li", {}, shown(member))));
  }
  if (typeof value !== "object") return String(value);
  const pairs = Object.entries(value).filter(([, member]) => member !== null);
  return make("dl", {}, ...pairs.flatMap(([name, member]) => [
    make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, shown(member)),
  ]));
}

export const explanation = (value) => shown(value);
