// What an operator does to a node.

import { post } from './api.js';
import { action, confirm } from './dialog.js';
import { propose } from './plan_parts.js';

/// The buttons for a node, as its state allows.
export function nodeActions({ node, partitions, mark, live }) {
  const set = (next) => post(`/v1/nodes/${node}/mark`, { mark: next });
  return [
    partitions === 0 && live && action('Add', {
      name: `Add node ${node}: give it partitions`,
      run: () => propose(`Add node ${node}`, { add: [node], reason: 'added in the console' }),
    }),
    partitions > 0 && action('Drain', {
      danger: true, name: `Drain node ${node}`,
      run: () => propose(`Drain node ${node}`, { remove: [node], reason: 'drained in the console' },
        { danger: true, note: `Node ${node} gives up all its partitions, for good.` }),
    }),
    mark === null && action('Maintenance', {
      name: `Take node ${node} out of service`,
      run: () => confirm({
        title: `Maintenance of node ${node}`, verb: 'Begin maintenance',
        text: 'The node is taken out of service for a while. It keeps its partitions; other nodes answer for it.',
        submit: () => set('maintenance'),
      }),
    }),
    mark !== null && action(mark === 'leaving' ? 'Keep' : 'End maintenance', {
      name: mark === 'leaving' ? `Keep node ${node}` : `End the maintenance of node ${node}`,
      done: `node ${node} has no mark`, run: () => set(null),
    }),
  ].filter(Boolean);
}
