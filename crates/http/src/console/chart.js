// Plots of lines over time: SVG that stretches with the page, with labels as text beside it.

import { h, s } from './dom.js';
import { clock } from './format.js';

const WIDTH = 600;
const HEIGHT = 150;
const POINTS_MAX = 300; // of a line
const LINES_MAX = 10;
const COLOURS = 10;
const GAP_MS_MIN = 30000; // a line is broken where nothing was reported for longer, or for four times the usual

/// Lines are { name, colour, points: [[unix_ms, value], …] }; `format` renders a value; `top` is the least height; `base` is that of
/// the units: 1000, or 1024 for bytes.
export function chart({ title, lines, from, to, format, top = 0, base = 1000 }) {
  const all = lines.map((line) => ({ ...line, points: thinned(line.points.filter(([at]) => at >= from && at <= to)) }))
    .filter(({ points }) => points.length > 0);
  const shown = all.length <= LINES_MAX ? all : [...all].sort((a, b) => mean(b) - mean(a)).slice(0, LINES_MAX);
  const highest = rounded(Math.max(top, 1e-9, ...shown.flatMap(({ points }) => points.map(([, value]) => value))), base);
  const x = (at) => WIDTH * (at - from) / Math.max(1, to - from);
  const y = (value) => HEIGHT * (1 - value / highest);

  // Handlers find their nodes from the event: those of this call may have been patched into older ones.
  const point = (plot, at) => {
    const figure = plot.closest('figure');
    const line = figure.querySelector('.cursor');
    line.setAttribute('x1', at === null ? -9 : x(at));
    line.setAttribute('x2', at === null ? -9 : x(at));
    figure.querySelector('.readout').textContent = at === null ? '' : clock(at);
    figure.querySelectorAll('.legend b').forEach((value, index) => {
      const { points } = shown[index];
      value.textContent = format(at === null ? points.at(-1)[1] : nearest(points, at));
    });
  };
  const keys = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const plot = event.currentTarget;
    const at = Math.min(to, Math.max(from, Number(plot.dataset.at ?? to) + step * (to - from) / 60));
    plot.dataset.at = at;
    point(plot, at);
  };
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    point(event.currentTarget, from + (to - from) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  };
  const leave = (event) => point(event.currentTarget, null);
  return h('figure', { class: 'chart', 'data-key': `chart ${title} ${shown.map(({ name }) => name).join()}` },
    h('figcaption', null, h('span', null, title), h('span', { class: 'readout' }, shown.length ? '' : 'nothing was reported')),
    h('div', {
      class: 'plot', tabindex: 0, role: 'img', 'aria-label': `${title}, from ${clock(from)} to ${clock(to)}: arrow keys show values`,
      onpointermove: move, onpointerleave: leave, onkeydown: keys, onblur: leave,
    },
    h('small', { class: 'top' }, format(highest).replace('.0 ', ' ')),
    s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      [0.25, 0.5, 0.75].map((part) => s('line', { class: 'grid', x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part })),
      shown.map(({ points, colour }) => s('path', { class: `line colour-${colour % COLOURS}`, d: path(points, x, y) })),
      s('line', { class: 'cursor', y1: 0, y2: HEIGHT, x1: -9, x2: -9 }))),
    h('div', { class: 'times' }, h('small', null, clock(from)), h('small', null, clock(to))),
    h('ul', { class: 'legend' }, shown.map(({ name, colour, points }) =>
      h('li', null, h('i', { class: `colour-${colour % COLOURS}` }), h('span', null, name), ' ', h('b', null, format(points.at(-1)[1]))))),
    all.length > shown.length && h('p', { class: 'quiet' }, `the ${shown.length} highest of ${all.length}`));
}

function path(points, x, y) {
  const usual = points.length > 1 ? (points.at(-1)[0] - points[0][0]) / (points.length - 1) : 0;
  let last = -Infinity;
  return points.map(([at, value]) => {
    const letter = at - last > Math.max(GAP_MS_MIN, 4 * usual) ? 'M' : 'L';
    last = at;
    return `${letter}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  }).join('');
}

/// At most POINTS_MAX points: the highest of each step, so that peaks stay.
function thinned(points) {
  const step = Math.ceil(points.length / POINTS_MAX);
  if (step <= 1) return points;
  const kept = [];
  for (let index = 0; index < points.length; index += step) {
    kept.push(points.slice(index, index + step).reduce((a, b) => (b[1] > a[1] ? b : a)));
  }
  return kept;
}

const mean = ({ points }) => points.reduce((total, [, value]) => total + value, 0) / points.length;
const nearest = (points, at) => points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a))[1];

/// The next of 1, 1.5, 2 and so on times a power of ten, in the unit that the value is shown in: bytes have powers of 1024.
function rounded(value, base) {
  const unit = value < 1 ? 1 : base ** Math.floor(Math.log(value) / Math.log(base));
  const power = unit * 10 ** Math.floor(Math.log10(value / unit));
  return power * [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.9999);
}
