// Numbers, sizes and times as text, and back.

const NARROW_SPACE = '\u202f';

export const absent = '–';

export function count(value, digits = 0) {
  if (value === null || value === undefined) return absent;
  return value.toLocaleString('en', { maximumFractionDigits: digits }).replaceAll(',', NARROW_SPACE);
}

function scaled(value, units, base) {
  let unit = 0;
  while (value >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`.trim();
}

export const bytes = (value) => value === null || value === undefined ? absent : scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'], 1024);
export const rate = (value) => value === null || value === undefined ? absent : value < 10 ? count(value, 1) : scaled(value, ['', 'k', 'M', 'G'], 1000);
export const percent = (value) => value === null || value === undefined ? absent : `${value < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
export const share = (part, whole) => whole ? percent(100 * part / whole) : absent;

export function microseconds(value) {
  if (value === null || value === undefined) return absent;
  if (value < 1000) return `${Math.round(value)} µs`;
  return value < 1e6 ? `${(value / 1000).toFixed(value < 1e4 ? 1 : 0)} ms` : `${(value / 1e6).toFixed(1)} s`;
}

export function seconds(value) {
  if (value === null || value === undefined) return absent;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

const two = (value) => String(value).padStart(2, '0');

export function clock(unix_ms) {
  const at = new Date(unix_ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function time(unix_ms) {
  if (unix_ms === null || unix_ms === undefined) return absent;
  const at = new Date(unix_ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return day === time.day(Date.now()) ? clock(unix_ms) : `${day} ${clock(unix_ms)}`;
}
time.day = (unix_ms) => {
  const at = new Date(unix_ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
};

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/// `545` minutes since midnight as `09:05`, and back.
export const timeOfDay = (minutes) => `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
export const minutesOfDay = (text) => {
  const [hours, minutes] = text.split(':').map(Number);
  return hours * 60 + minutes;
};

const UNITS = {
  bytes: { b: 1, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, tib: 1024 ** 4 },
  microseconds: { us: 1, 'µs': 1, ms: 1000, s: 1e6 },
  ms: { ms: 1, s: 1000, min: 60000, h: 3600000, d: 86400000 },
  seconds: { s: 1, min: 60, h: 3600, d: 86400 },
};

/// The unit that the name of a setting ends with: `bytes`, `ms`, `seconds`, `percent` or none.
export function unitOf(name) {
  const words = name.replace(/-per-second$/, '').split('-').filter((word) => word !== 'max');
  const last = words.at(-1);
  return last in UNITS || last === 'percent' ? last : null;
}

/// A number with or without a unit, such as `64MiB` or `30 s`, in the unit of the setting; null if malformed.
export function quantity(text, unit) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-zµ%]*)\s*$/i.exec(text);
  if (!match) return null;
  const factor = match[2] === '' || match[2] === '%' ? 1 : UNITS[unit]?.[match[2].toLowerCase()];
  return factor === undefined ? null : Math.round(Number(match[1]) * factor);
}

/// A number in the unit of a setting, for people.
export function inUnit(value, unit) {
  if (unit === 'bytes') return bytes(value);
  if (unit === 'ms') return value < 1000 ? `${value} ms` : seconds(value / 1000);
  if (unit === 'seconds') return seconds(value);
  if (unit === 'microseconds') return microseconds(value);
  return unit === 'percent' ? percent(value) : count(value);
}
