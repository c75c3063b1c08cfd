// Load over time, by node and by store, and the keys that are asked for most.

import { chart } from '../chart.js';
import { h } from '../dom.js';
import { microseconds, percent, plural, rate } from '../format.js';
import { beginning, byNode, byStore, latest, most, sum, update } from '../history.js';
import { choice, heading, section, storeLink } from '../parts.js';
import { table } from '../table.js';

export const title = 'Load';

const RANGES = [[300000, '5 min'], [900000, '15 min'], [3600000, '1 h']];

export async function load(page) {
  const [now] = await Promise.all([page.get('/v1/load', ['load']), page.keep('history', ['load'], update)]);
  return now;
}

/// A step in which every node reports: nodes report ten times in a window.
export const stepOf = (window_ms, range_ms) => Math.max(window_ms / 5, range_ms / 150);

export function draw(page, now) {
  const range = page.state.range ?? RANGES[1][0];
  const to = latest();
  const plot = (name, lines, format, top) => chart({ title: name, lines, from: Math.max(to - range, beginning()), to, format, top });
  const step = stepOf(now.window_ms, range);
  return [
    heading('Load', choice('Range', RANGES, range, (next) => {
      page.state.range = next;
      page.draw();
    })),
    section('Nodes', h('div', { class: 'charts' },
      plot('Requests/s', byNode((load) => load.requests_per_second), rate, 1),
      plot('CPU', byNode((load) => load.cpu_percent), percent, 10),
      plot('p99', byNode((load) => load.p99_microseconds), microseconds, 100))),
    section('Stores', h('div', { class: 'charts' },
      plot('Requests/s', byStore('requests_per_second', sum, step), rate, 1),
      plot('p99, of the slowest node', byStore('p99_microseconds', most, step), microseconds, 100))),
    section('Hot keys', table(page, {
      id: 'keys', label: 'Hot keys', rows: now.hot_keys.toSorted((a, b) => b.requests_per_second - a.requests_per_second), key: ({ store, key }) => `${store}:${key}`,
      empty: `No key stood out in the last ${plural(Math.round(now.window_ms / 1000), 'second')}.`,
      columns: [
        { name: 'Store', cell: ({ store }) => storeLink(store), by: ({ store }) => store },
        { name: 'Key', cell: ({ store, key }) => h('a', { href: `#/lookup/${encodeURIComponent(`${store}:${key}`)}` }, h('code', null, key)), by: ({ key }) => key },
        { name: 'Partition', number: true, cell: ({ partition }) => partition, by: ({ partition }) => partition },
        { name: 'Requests/s', number: true, cell: (key) => rate(key.requests_per_second), by: (key) => key.requests_per_second },
      ],
    })),
  ];
}
