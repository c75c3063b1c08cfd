// One node: its state and its plots.

import { chart } from '../chart.js';
import { h } from '../dom.js';
import { bytes, microseconds, percent, rate, time } from '../format.js';
import { beginning, byNode, latest, update } from '../history.js';
import { nodeActions } from '../node_actions.js';
import { facts, heading, marks, section, state, storeLink } from '../parts.js';

const number = (page) => Number(page.parameters[0]);
export const title = (page) => `Node ${page.parameters[0]}`;

export async function load(page) {
  const [{ nodes }] = await Promise.all([
    page.get('/v1/nodes', ['nodes', 'routing', 'stores']),
    page.keep('history', ['load'], update).catch(() => null),
  ]);
  return { node: nodes.find(({ node }) => node === number(page)) };
}

export function draw(page, { node }) {
  if (!node) return [heading(title(page)), h('p', { class: 'banner bad' }, 'no node has this number')];
  const to = latest();
  const from = beginning();
  const plot = (name, value, format, top, base) => chart({ title: name, lines: byNode(value, node.node), from, to, format, top, base });
  const traffic = (name, value) => plot(name, value, (amount) => `${bytes(amount)}/s`, 1024, 1024);
  return [
    heading(`Node ${node.node}`, h('span', { class: 'badges' }, node.live && state('live'), marks(node)), h('span', { class: 'actions' }, nodeActions(node))),
    facts([
      ['zone', node.zone], node.group !== null && ['group', node.group], ['partitions', node.partitions],
      node.partitions_next !== null && ['partitions next', node.partitions_next], ['weight', node.weight],
      ['RESP', node.resp], ['HTTP', node.http], node.host !== null && ['machine', node.host],
      node.absent_since_unix_ms !== null && ['absent since', time(node.absent_since_unix_ms)],
      node.late.length > 0 && ['late with', node.late.map((name) => [storeLink(name), ' '])],
    ]),
    section('The last hour', h('div', { class: 'charts' },
      plot('CPU', (load) => load.cpu_percent, percent, 10),
      plot('Requests/s', (load) => load.requests_per_second, rate, 1),
      plot('p99', (load) => load.p99_microseconds, microseconds, 100),
      plot('Memory', (load) => load.memory_bytes, bytes, 0, 1024),
      plot('Disk', (load) => load.disk_bytes, bytes, 0, 1024),
      traffic('Network in', (load) => load.network_in_bytes_per_second),
      traffic('Network out', (load) => load.network_out_bytes_per_second))),
  ];
}
