// Forms that change something or ask for an explanation.

import { get, post } from "./api.js";
import { $, make, say } from "./dom.js";
import { explanation } from "./explain.js";

const PLACEHOLDERS = {
  url: "http://shop.example/items/1",
  tag: "product-7",
  prefix: "shop.example/items/",
  path_regex: "^/items/.*\\.png$",
};

function tell(element, isGood, ...content) {
  element.classList.toggle("bad", !isGood);
  element.replaceChildren(...content);
  // Only the state line is live; the focus takes a reader to the result.
  element.focus();
}

function startPurge() {
  const form = $("purge");
  const { kind, value, site, reach, confirm } = form.elements;
  const name = () => (kind.value === "all" ? "all" : site.value);
  const needsName = () => kind.value === "all" || kind.value === "site";
  const adapt = () => {
    $("purge-target").hidden = needsName();
    $("purge-site").hidden = kind.value !== "site";
    $("purge-confirm").hidden = !needsName();
    say($("purge-name"), name());
    value.placeholder = PLACEHOLDERS[kind.value] ?? "";
    confirm.value = "";
  };
  kind.addEventListener("change", adapt);
  site.addEventListener("change", adapt);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = $("purge-result");
    if (needsName() && confirm.value.trim() !== name()) {
      return tell(result, false, `Nothing was purged: type ${name()} to confirm.`);
    }
    const target = { site: site.value, all: true }[kind.value] ?? value.value;
    if (target === "") return tell(result, false, "Nothing was purged: the target is empty.");
    try {
      const answer = await post("purge", { [kind.value]: target, hard: reach.value === "hard" });
      const instances = `${answer.instances} instance${answer.instances === 1 ? "" : "s"}`;
      const found = answer.purged ? "" : " Nothing under this target was stored here.";
      tell(result, true, `Purge ${answer.id} reached ${instances}.${found}`);
      confirm.value = "";
    } catch (error) {
      tell(result, false, `The purge failed. ${error.message}`);
    }
  });
  adapt();
  return adapt;
}

async function startExplain() {
  const form = $("explain");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = new URLSearchParams({ url: form.elements.url.value });
    const fields = form.elements.headers.value.split("\n").map((line) => line.trim());
    fields.filter((line) => line !== "").forEach((line) => query.append("header", line));
    try {
      tell($("explain-result"), true, explanation(await get(`explain?${query}`)));
    } catch (error) {
      tell($("explain-result"), false, error.message);
    }
  });
}

/** Starts the forms. `setSites` offers the sites for a purge. */
export function startActions() {
  const adapt = startPurge();
  startExplain();
  return {
    setSites(sites) {
      const { site } = $("purge").elements;
      const known = sites.filter((name) => name !== "other");
      if ([...site.options].map((option) => option.value).join() === known.join()) return;
      site.replaceChildren(...known.map((name) => make("option", { value: name }, name)));
      adapt();
    },
    showExplain() {
      $("explain-panel").hidden = false;
    },
  };
}
