// History of the time span, extended by live events.

const POINTS_MAX = { "15m": 900, "24h": 1440 };

const GROUPS = ["counts", "latencies_us", "process"];

export class Store {
  /** Takes what `/history` answered. */
  load(history) {
    this.history = history;
    this.span = history.span;
    this.step = history.step;
    this.end = history.end;
  }

  get isLoaded() {
    return this.history !== undefined;
  }

  /** Adds a live event. Returns false if seconds are missing, so that the history must be loaded again. */
  add(event) {
    if (this.span === "24h") return event.t - this.end < 120 + 3;
    if (event.t <= this.end) return event.t > this.end - 5;
    if (event.t !== this.end + 1) return false;
    const { counts, latencies_us: latencies, global } = event.values;
    const tiers = Object.values(this.history.tiers);
    const [process, perTier] = [Object.values(this.history.process), 3];
    push(Object.values(this.history.counts), counts);
    push(Object.values(this.history.latencies_us), latencies);
    push(process, global.slice(0, process.length));
    tiers.forEach((tier, place) => {
      const at = process.length + perTier * place;
      push(Object.values(tier), global.slice(at, at + perTier));
    });
    this.end = event.t;
    return true;
  }

  /** Times of the points, in seconds since 1970. */
  times() {
    const length = this.history.counts.hit.length;
    return Array.from({ length }, (_, place) => this.end - (length - 1 - place) * this.step);
  }

  /** Values of a column, the oldest first. */
  column(name) {
    for (const group of GROUPS) {
      if (name in this.history[group]) return this.history[group][name];
    }
    throw new Error(`no column ${name}`);
  }

  /** Values of a count as events a second. */
  rates(name) {
    return this.column(name).map((value) => (value === null ? null : value / this.step));
  }

  /** Values of a latency in milliseconds. */
  milliseconds(name) {
    return this.column(name).map((value) => (value === null ? null : value / 1000));
  }

  /** Sum of counts over the time span. */
  sum(...names) {
    return names.reduce((all, name) => all + total(this.column(name)), 0);
  }

  /** Newest value of a column. */
  last(name) {
    return this.column(name).at(-1) ?? null;
  }

  /** Observed seconds of the time span. */
  get seconds() {
    return this.column("hit").filter((value) => value !== null).length * this.step;
  }

  /** Sum of a number of a tier over the time span. */
  ofTier(tier, name) {
    return total(this.history.tiers[tier]?.[name] ?? []);
  }

  get max() {
    return POINTS_MAX[this.span];
  }
}

const total = (values) => values.reduce((all, value) => all + (value ?? 0), 0);

function push(columns, values) {
  columns.forEach((column, place) => {
    column.push(values[place] ?? null);
    if (column.length > POINTS_MAX["15m"]) column.shift();
  });
}
