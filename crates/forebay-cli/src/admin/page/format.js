// Texts of numbers. A missing number is a dash.

const DASH = "–";
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Count: `1,204`, `12.4 k`, `3.1 M`. */
export function count(value) {
  if (!Number.isFinite(value)) return DASH;
  if (value < 1e4) return grouped.format(value);
  const [scaled, unit] = value < 1e6 ? [value / 1e3, "k"] : value < 1e9 ? [value / 1e6, "M"] : [value / 1e9, "G"];
  return `${scaled.toFixed(scaled < 100 ? 1 : 0)} ${unit}`;
}

/** Number of events a second: small ones keep two digits. */
export function rate(value) {
  if (!Number.isFinite(value)) return DASH;
  if (value === 0) return "0";
  if (value < 0.01) return "< 0.01";
  return value < 1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : count(value);
}

/** Ratio as a percentage. It is rounded down, so that 100 % means all. */
export function percent(part, whole) {
  if (!(whole > 0)) return DASH;
  return `${(Math.floor((1000 * part) / whole) / 10).toFixed(1)} %`;
}

/** Bytes in binary units. */
export function bytes(value) {
  if (!Number.isFinite(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit > 0 && value < 100 ? 1 : 0)} ${units[unit]}`;
}

/** Duration from milliseconds. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return DASH;
  if (ms < 1) return `${trimmed(ms * 1000)} µs`;
  return ms < 1000 ? `${trimmed(ms)} ms` : `${trimmed(ms / 1000)} s`;
}

const trimmed = (value) => (value < 10 ? String(Number(value.toFixed(1))) : value.toFixed(0));

/** Time span from seconds: `45 s`, `12 min`, `4 h`, `3 d`. */
export function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

/** Time of day, in the zone of the browser; with the date if it is another day. */
export function time(date, withSeconds = false) {
  const parts = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(withSeconds && { second: "2-digit" }) };
  const isToday = date.toDateString() === new Date().toDateString();
  const day = isToday ? {} : { month: "short", day: "numeric" };
  return new Intl.DateTimeFormat("en", { ...day, ...parts }).format(date);
}
