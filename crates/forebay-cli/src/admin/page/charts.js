// Charts. Each has a legend with the values under the cursor, a sentence, and a table.

/* global uPlot */

import { $, make, row, say } from "./dom.js";
import { count, duration, percent, rate, time } from "./format.js";

/** Height of a plot in pixels. */
const HEIGHT = 190;

/** Number of rows of the table of a chart. */
const ROWS = 15;

/** Shortest range of the time axis in seconds. */
const RANGE_MIN = 120;

const OUTCOMES = [
  ["hit", "hit"], ["stale", "stale"], ["fallback", "fallback"], ["collapsed", "collapsed"], ["revalidated", "revalidated"],
  ["miss", "miss"], ["pass", "pass"], ["bypass", "bypass"], ["rule", "rule"], ["refused", "refused"], ["error", "error"],
];

const REASONS = [
  ["why_not_stored", "not stored", "miss"], ["why_expired", "expired", "revalidated"], ["why_purged", "purged", "fallback"],
  ["why_vary", "other variant", "collapsed"], ["why_request", "client asked", "stale"],
  ["why_not_shareable", "not shareable", "pass"], ["why_bypass", "bypass", "bypass"], ["why_origin", "origin failed", "error"],
];

const stacked = (rows) => rows.map(([key, label, colour = key]) => ({ key, label, colour, of: (store) => store.rates(key) }));

const latency = (key, label, colour, dash) =>
  ({ key, label, colour, dash, scale: "ms", of: (store) => store.milliseconds(key) });

/** Places of values without a neighbour, which no line shows; `null` if all points are shown. */
function lonely(chart, series, isShown) {
  const values = chart.data[series];
  const isLonely = (at) => values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null;
  return isShown ? null : [...values.keys()].filter(isLonely);
}

const sumOf = (values) => values.reduce((all, value) => all + (value ?? 0), 0);

/** Largest number of a list of which some may be missing, and its place. */
function peak(values) {
  let place = -1;
  values.forEach((value, at) => {
    if (value !== null && (place < 0 || value > values[place])) place = at;
  });
  return place;
}

function shares(store, series) {
  const sums = series.map(({ key, label }) => [label, store.sum(key)]).filter(([, sum]) => sum > 0);
  const all = sumOf(sums.map(([, sum]) => sum));
  sums.sort((one, other) => other[1] - one[1]);
  if (sums.length === 0) return "none";
  const shown = sums.length > 4 ? [...sums.slice(0, 3), ["others", sumOf(sums.slice(3).map(([, sum]) => sum))]] : sums;
  return shown.map(([label, sum]) => `${label} ${percent(sum, all)}`).join(", ");
}

/** What the charts show: where, what question they answer, and of which series. */
const CHARTS = [
  {
    id: "outcomes", title: "Requests by outcome", question: "Do visitors see errors, or old pages?",
    isStacked: true, series: stacked(OUTCOMES), value: (v) => `${rate(v)}/s`,
    summary: (store, chart) => shares(store, chart.spec.series),
  },
  {
    id: "latency", title: "Time to the response head", question: "Slow for all, or only for misses?",
    series: [
      latency("hit_p50", "hits p50", "hit"), latency("hit_p99", "hits p99", "hit", [6, 4]),
      latency("miss_p50", "misses p50", "miss"), latency("miss_p99", "misses p99", "miss", [6, 4]),
    ],
    value: duration,
    summary: (store) => {
      const worst = (key) => {
        const values = store.milliseconds(key);
        const at = peak(values);
        return at < 0 ? "none" : `${duration(values[at])} at ${time(new Date(store.times()[at] * 1000))}`;
      };
      return `slowest p99 of hits ${worst("hit_p99")}, of misses ${worst("miss_p99")}`;
    },
  },
  {
    id: "origin", title: "Origin", question: "Is the origin down, or slow?",
    series: [
      { key: "loads", label: "fetches/s", colour: "miss", of: (store) => store.rates("loads") },
      { key: "loads_failed", label: "failed/s", colour: "error", isFilled: true, of: (store) => store.rates("loads_failed") },
      latency("load_p50", "p50", "bypass"), latency("load_p99", "p99", "bypass", [6, 4]),
    ],
    value: (v, series) => (series.scale === "ms" ? duration(v) : `${rate(v)}`),
    summary: (store) => {
      const [loads, failed] = [store.sum("loads"), store.sum("loads_failed")];
      return loads === 0 ? "no fetch" : `${count(loads)} fetches, ${failed === 0 ? "none" : percent(failed, loads)} failed`;
    },
  },
  {
    id: "reasons-chart", title: "Why not a hit", question: "What empties the cache: a purge, clients, Vary, expiry?",
    isStacked: true, series: stacked(REASONS), value: (v) => `${rate(v)}/s`,
    summary: (store, chart) => shares(store, chart.spec.series),
  },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

class Chart {
  constructor(spec) {
    this.spec = spec;
    const panel = $(spec.id);
    const title = `${spec.id}-title`;
    panel.setAttribute("aria-labelledby", title);
    this.plot = make("div", { class: "plot", tabindex: "0", role: "img", "aria-label": `${spec.title}; the arrow keys move the cursor` });
    this.legend = make("ul", { class: "legend" });
    this.values = spec.series.map(() => make("b"));
    this.swatches = spec.series.map((series) => swatch(series));
    this.items = spec.series.map((series, place) => make("li", {}, this.swatches[place], series.label, this.values[place]));
    this.moment = make("li", { class: "muted" });
    this.legend.append(...this.items, this.moment);
    this.summary = make("p", { class: "summary" });
    this.table = make("details", {}, make("summary", {}, "Table"), make("div", { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": title }));
    panel.replaceChildren(
      make("h2", { id: title }, spec.title), make("p", { class: "question" }, spec.question),
      this.plot, this.legend, this.summary, this.table,
    );
    this.table.addEventListener("toggle", () => this.showTable());
    this.plot.addEventListener("keydown", (event) => this.move(event));
    this.plot.addEventListener("blur", () => this.at(null));
    new ResizeObserver(() => this.uplot?.setSize({ width: this.plot.clientWidth, height: HEIGHT })).observe(this.plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  show(store) {
    this.store = store;
    this.times = store.times();
    this.columns = this.spec.series.map((series) => series.of(store));
    // A series that never had a value says nothing, and is not in the legend of a stack.
    this.columns.forEach((values, place) => {
      this.items[place].hidden = this.spec.isStacked === true && !values.some((value) => value > 0);
    });
    const data = [this.times, ...(this.spec.isStacked ? this.stack() : this.columns)];
    const end = this.times.at(-1) ?? 0;
    const first = this.times[this.columns[0].findIndex((value) => value !== null)] ?? end;
    this.range = [Math.min(first, end - RANGE_MIN), end];
    if (this.uplot) this.uplot.setData(data);
    else this.uplot = this.make(data);
    say(this.summary, this.spec.summary(store, this));
    this.showValues();
    if (this.table.open) this.showTable();
  }

  /** Sums of each series and those below it, the largest first: each is painted over the one before. */
  stack() {
    const sums = [];
    let below = this.times.map(() => 0);
    for (const values of this.columns) {
      below = values.map((value, at) => (value === null ? null : value + (below[at] ?? 0)));
      sums.push(below);
    }
    return sums.reverse();
  }

  make(data) {
    const { spec } = this;
    const series = spec.series.map((one) => {
      const paint = colour(one.colour);
      const isFilled = spec.isStacked || one.isFilled;
      return {
        scale: one.scale ?? "y", stroke: paint, width: spec.isStacked ? 0.5 : 1.5, dash: one.dash,
        fill: isFilled ? paint : undefined, points: spec.isStacked ? { show: false } : { size: 5, filter: lonely },
      };
    });
    if (spec.isStacked) series.reverse();
    const hasRates = spec.series.some((one) => one.scale === undefined);
    const hasTimes = spec.series.some((one) => one.scale === "ms");
    const axis = { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const values = (texts) => (_, splits) => splits.map((value) => (value === null ? "" : texts(value)));
    const moments = (_, splits, __, ___, step) => splits.map((at) => clock(at, step));
    const axes = [{ ...axis, grid: { show: false }, size: 26, gap: 4, space: 70, values: moments }];
    if (hasRates) axes.push({ ...axis, scale: "y", size: 52, values: values(rate) });
    if (hasTimes) {
      axes.push({ ...axis, scale: "ms", size: 58, side: hasRates ? 1 : 3, grid: { ...axis.grid, show: !hasRates, filter: decades }, values: values(duration), filter: decades });
    }
    const scales = {
      x: { range: () => this.range },
      y: { range: (_, __, max) => [0, Math.max(max ?? 0, 1) * 1.08] },
      ms: { distr: 3, range: (_, min, max) => (min === null ? [0.1, 1000] : [10 ** Math.floor(Math.log10(min)), 10 ** Math.ceil(Math.log10(max * 1.01))]) },
    };
    const options = {
      width: this.plot.clientWidth, height: HEIGHT, series: [{}, ...series], axes, scales, legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: !spec.isStacked }, y: false },
      hooks: { setCursor: [() => this.showValues()] }, padding: [8, hasTimes && hasRates ? 0 : 22, 0, 0],
    };
    return new uPlot(options, data, this.plot);
  }

  /** Paints again with the colours of the other scheme. */
  redraw() {
    this.swatches.forEach((old, place) => {
      this.swatches[place] = swatch(this.spec.series[place]);
      old.replaceWith(this.swatches[place]);
    });
    this.uplot?.destroy();
    this.uplot = undefined;
    if (this.store) this.show(this.store);
  }

  /** Shows the values under the cursor, or the newest ones. */
  showValues() {
    const at = this.uplot?.cursor.idx ?? null;
    const place = at ?? this.times.length - 1;
    this.columns.forEach((values, series) => {
      const value = values[place];
      say(this.values[series], value === null || value === undefined ? "–" : this.spec.value(value, this.spec.series[series]));
    });
    say(this.moment, at === null ? "" : `at ${time(new Date(this.times[at] * 1000), this.store.step < 60)}`);
  }

  move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !this.uplot) return;
    event.preventDefault();
    const last = this.times.length - 1;
    this.at(Math.max(0, Math.min(last, (this.uplot.cursor.idx ?? last) + step)));
  }

  at(place) {
    const left = place === null ? -10 : this.uplot?.valToPos(this.times[place], "x");
    this.uplot?.setCursor({ left, top: place === null ? -10 : 0 });
  }

  showTable() {
    if (!this.table.open || !this.store) return;
    const size = Math.max(1, Math.ceil(this.times.length / ROWS));
    const head = make("tr", {}, make("th", { scope: "col" }, "from"), ...this.spec.series.map(({ label }) => make("th", { scope: "col", class: "n" }, label)));
    const rows = [];
    for (let from = 0; from < this.times.length; from += size) {
      const cells = this.columns.map((values, series) => {
        const known = values.slice(from, from + size).filter((value) => value !== null);
        const isTime = this.spec.series[series].scale === "ms";
        const value = isTime ? Math.max(...known) : sumOf(known) / known.length;
        return [known.length === 0 ? "–" : this.spec.value(value, this.spec.series[series]), "n"];
      });
      rows.push(row(time(new Date(this.times[from] * 1000), this.store.step < 60), ...cells));
    }
    const caption = make("caption", { class: "muted" }, "Means of counts, and largest latencies, of each row");
    const table = make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...rows));
    this.table.lastChild.replaceChildren(table);
  }
}

/** Label of the time axis: seconds only between labels that are less than a minute apart. */
const clock = (at, step) => time(new Date(at * 1000), step < 60).split(", ").at(-1);

/** Labels of a logarithmic axis: the powers of ten. */
function decades(_, splits) {
  return splits.map((value) => (Math.abs(Math.log10(value) % 1) < 1e-6 ? value : null));
}

function swatch({ colour: name, dash, scale }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 18 10");
  svg.setAttribute("aria-hidden", "true");
  const isLine = scale === "ms";
  const shape = document.createElementNS("http://www.w3.org/2000/svg", isLine ? "line" : "rect");
  const attributes = isLine
    ? { x1: 0, x2: 18, y1: 5, y2: 5, "stroke-width": 2.5, stroke: colour(name), "stroke-dasharray": dash ? "5 3" : "none" }
    : { x: 3, y: 0, width: 12, height: 10, rx: 2, fill: colour(name) };
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
  svg.append(shape);
  return svg;
}

export const makeCharts = () => CHARTS.map((spec) => new Chart(spec));
