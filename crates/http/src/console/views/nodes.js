// The table of nodes.

import { action } from '../dialog.js';
import { h } from '../dom.js';
import { bytes, count, microseconds, percent, rate, share } from '../format.js';
import { nodeActions } from '../node_actions.js';
import { heading, marks, nodeLink, state } from '../parts.js';
import { propose } from '../plan_parts.js';
import { table } from '../table.js';

export const title = 'Nodes';

export async function load(page) {
  const [{ nodes }, reported] = await Promise.all([
    page.get('/v1/nodes', ['nodes', 'routing', 'stores']),
    page.get('/v1/load', ['load'], { nodes: [] }),
  ]);
  const loads = new Map(reported.nodes.map((entry) => [entry.node, entry.load]));
  return nodes.map((node) => ({ ...node, load: loads.get(node.node) ?? null }));
}

export function draw(page, nodes) {
  const waiting = nodes.filter((node) => node.live && node.partitions === 0 && !node.backup && node.mark === null).map(({ node }) => node);
  const measure = (name, text, by) => ({
    name, number: true, cell: ({ load }) => (load ? text(load) : '–'), by: ({ load }) => (load ? by(load) : null),
  });
  return [
    heading('Nodes', waiting.length > 1 && action(`Add ${waiting.length} new nodes`, {
      run: () => propose(`Add nodes ${waiting.join(', ')}`, { add: waiting, reason: 'added in the console' }),
    })),
    table(page, {
      id: 'nodes', label: 'Nodes', rows: nodes, key: ({ node }) => node, empty: 'There are no nodes yet.',
      columns: [
        { name: 'Node', cell: ({ node }) => nodeLink(node), by: ({ node }) => node },
        { name: 'State', cell: (node) => h('span', { class: 'badges' }, node.live && state('live'), marks(node)), by: ({ live, mark }) => `${live} ${mark}` },
        { name: 'Zone', cell: ({ zone }) => zone, by: ({ zone }) => zone },
        nodes.some(({ group }) => group !== null) && { name: 'Group', cell: ({ group }) => group ?? '–', by: ({ group }) => group },
        { name: 'Partitions', number: true, by: ({ partitions }) => partitions,
          cell: ({ partitions, partitions_next: next }) => next === null || next === partitions ? count(partitions) : `${count(partitions)} → ${count(next)}` },
        measure('CPU', (load) => percent(load.cpu_percent), (load) => load.cpu_percent),
        measure('Memory', (load) => `${bytes(load.memory_bytes)} (${share(load.memory_bytes, load.memory_max_bytes)})`, (load) => load.memory_bytes),
        measure('Disk', (load) => share(load.disk_bytes, load.disk_max_bytes), (load) => load.disk_bytes / load.disk_max_bytes),
        measure('Requests/s', (load) => rate(load.requests_per_second), (load) => load.requests_per_second),
        measure('p99', (load) => microseconds(load.p99_microseconds), (load) => load.p99_microseconds),
        { name: 'Actions', cell: (node) => h('span', { class: 'actions' }, h('a', { class: 'button', href: `#/nodes/${node.node}`, 'aria-label': `Plots of node ${node.node}` }, 'Plots'), nodeActions(node)) },
      ].filter(Boolean),
    }),
  ];
}
