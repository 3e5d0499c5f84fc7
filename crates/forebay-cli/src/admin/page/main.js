// Dashboard: loads the history, follows the live events, and shows both.

import { Failure, get, stream, token } from "./api.js";
import { startActions } from "./actions.js";
import { hasTraffic, makeCards, showCards } from "./cards.js";
import { makeCharts } from "./charts.js";
import { $, make, say } from "./dom.js";
import { showHealth, showSilence, showState } from "./state.js";
import { Store } from "./store.js";
import { showCurve, showNotices, showOrigins, showTiers } from "./tables.js";
import { startTop } from "./top.js";

/** Milliseconds without an event after which the numbers are old. */
const SILENT_AFTER = 3000;

/** Pauses between attempts to connect, in milliseconds. */
const PAUSES = [500, 1000, 2000, 5000];

const store = new Store();
const view = { site: "", span: "15m", isPaused: false, event: undefined, heard: performance.now(), notices: -1 };
let connection = new AbortController();

makeCards();
const charts = makeCharts();
const actions = startActions();

function draw() {
  if (!store.isLoaded) return;
  showCards(store, view.event);
  charts.forEach((chart) => chart.show(store));
  if (!view.event) return;
  showTiers(store, view.event.tiers);
  showOrigins(view.event.origins);
  showCurve(view.event.curve);
  const isIdle = !hasTraffic(store);
  $("no-traffic").hidden = !isIdle;
  if (isIdle) say($("curl"), `curl -i ${view.event.url ?? "http://127.0.0.1:8080"}/`);
}

async function load() {
  const query = new URLSearchParams({ site: view.site, span: view.span });
  const history = await get(`history?${query}`);
  store.load(history);
  actions.setSites(history.sites);
  const names = ["", ...history.sites];
  if ([...$("site").options].map((option) => option.value).join() !== names.join()) {
    const options = names.map((name) => make("option", { value: name }, name || "all sites"));
    $("site").replaceChildren(...options);
    $("site").value = view.site;
  }
}

async function take(event) {
  view.heard = performance.now();
  document.body.classList.remove("silent");
  view.event = event;
  // A site gets a history with its first request.
  const isComplete = store.add(event) && event.sites === store.history.sites.length;
  if (!isComplete) await load();
  showHealth(event, hasTraffic(store));
  if (event.paths.includes("/explain")) actions.showExplain();
  if (event.paths.includes("/top")) startTop(() => view.isPaused);
  if (event.notices !== view.notices) {
    view.notices = event.notices;
    showNotices((await get("notices")).notices);
  }
  if (!view.isPaused) draw();
}

function askForToken(isWrong) {
  showState("token");
  $("token").hidden = false;
  say($("token-error"), isWrong ? "The listener rejects this token." : "");
  $("token-value").focus();
}

/** Follows the live events until `signal` aborts, and connects again when they end. */
async function follow(signal) {
  let failed = 0;
  while (!signal.aborted) {
    try {
      await load();
      draw();
      $("token").hidden = true;
      const query = new URLSearchParams({ site: view.site });
      // Events are handled one after the other, because one may load the history.
      let before = Promise.resolve();
      await stream(`events?${query}`, signal, (event) => {
        failed = 0;
        before = before.then(() => signal.aborted || take(event)).catch(() => {});
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Failure && error.status === 401) {
        const wasSent = sessionStorage.getItem("token") !== null;
        token.forget();
        return askForToken(wasSent);
      }
      if (error instanceof Failure && error.status === 404 && view.site !== "") {
        view.site = "";
        $("site").value = "";
        continue;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSES[Math.min(failed, PAUSES.length - 1)]));
    failed += 1;
  }
}

function restart() {
  connection.abort();
  connection = new AbortController();
  follow(connection.signal);
}

function watchSilence() {
  const silence = performance.now() - view.heard;
  if (silence < SILENT_AFTER || !$("token").hidden) return;
  document.body.classList.add("silent");
  showSilence(silence / 1000);
}

$("site").addEventListener("change", () => {
  view.site = $("site").value;
  restart();
});
for (const choice of document.querySelectorAll("input[name=span]")) {
  choice.addEventListener("change", () => {
    view.span = choice.value;
    restart();
  });
}
$("pause").addEventListener("click", () => {
  view.isPaused = !view.isPaused;
  $("pause").setAttribute("aria-pressed", view.isPaused);
  say($("pause"), view.isPaused ? "Continue" : "Pause");
  if (!view.isPaused) draw();
});
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set($("token-value").value.trim());
  $("token-value").value = "";
  $("token").hidden = true;
  view.heard = performance.now();
  restart();
});
setInterval(watchSilence, 1000);
restart();
