// What a plan would do, its moves, and the dialogs that make plans.

import { post } from './api.js';
import { ask, check, field, notice } from './dialog.js';
import { h } from './dom.js';
import { bytes, count, plural, seconds } from './format.js';
import { nodeLink, state } from './parts.js';
import { table } from './table.js';

export const summary = (plan) => `${plural(plan.moves.length, 'move')} of ${plural(plan.partitions, 'partition')}: `
  + `${bytes(plan.bytes)} to fetch${plan.bytes_between_zones ? `, ${bytes(plan.bytes_between_zones)} of it from other zones` : ''}, about ${seconds(plan.seconds)}`;

/// Which of the two made a plan.
export const maker = ({ by, user }) => (by === 'analyzer' ? 'the cluster' : user ?? by);

/// The cluster gives a reason for the plan and one for each move.
export const reasons = ({ reason }) => reason.split('; ').filter(Boolean);

export const moves = (page, plan) => table(page, {
  id: 'moves', label: 'Moves', rows: plan.moves, key: ({ partition, from, to }) => `${partition} ${from} ${to}`,
  columns: [
    { name: 'Partition', cell: ({ partition }) => count(partition), by: ({ partition }) => partition },
    { name: 'From', cell: ({ from }) => nodeLink(from), by: ({ from }) => from },
    { name: 'To', cell: ({ to }) => nodeLink(to), by: ({ to }) => to },
    { name: 'State', cell: (move) => [state(move.state), ' ', move.error], by: (move) => move.state },
  ],
});

const shortMoves = (plan) => [
  h('p', null, summary(plan), h('small', null, ' Each partition: from node → to node')),
  h('ul', { class: 'moves' }, plan.moves.slice(0, 40).map(({ partition, from, to }) =>
    h('li', null, `${partition}: ${from ?? 'new'} → ${to ?? 'none'}`))),
  plan.moves.length > 40 && h('p', { class: 'quiet' }, `and ${count(plan.moves.length - 40)} more`),
];

const dryRun = (request) => post('/v1/plans', { ...request, dry_run: true });

/// Shows what the plan would do, and saves or runs it if the reader agrees. Resolves to whether.
export async function propose(title, request, { danger = false, note } = {}) {
  const plan = await dryRun(request);
  return ask({
    title, danger, verb: 'Run it', body: [note && h('p', null, note), shortMoves(plan)],
    submit: async () => {
      const { number } = await post('/v1/plans', { ...request, run: true });
      notice(`plan ${number} runs`);
    },
    extra: [{ label: 'Save as a proposal', run: async () => { notice(`plan ${(await post('/v1/plans', request)).number} is proposed`); } }],
  });
}

const KINDS = [
  ['add', 'Add nodes: give them their share'], ['remove', 'Remove nodes: take all their partitions'],
  ['moves', 'Move partitions by hand'], ['even', 'Even: give every node its share again'],
];

/// A form for any plan.
export function makePlan(nodes) {
  const number = (name, label, attributes) => h('input', { type: 'number', name, 'aria-label': label, placeholder: label, min: 0, ...attributes });
  const move = () => h('div', { class: 'row' }, number('partition', 'partition'), number('from', 'from node'), number('to', 'to node'));
  const rows = h('div', null, move());
  const choices = h('div', { class: 'choices' }, nodes.map((node) =>
    check(`node ${node.node}${node.partitions === 0 ? ' (no partitions)' : ''}`, { name: 'node', value: node.node })));
  const hand = h('div', { hidden: true }, rows,
    h('button', { type: 'button', onclick: () => { rows.append(move()); rows.lastChild.querySelector('input').focus(); } }, 'Another move'));
  const kinds = h('fieldset', { onchange: (event) => {
    choices.hidden = !['add', 'remove'].includes(event.target.value);
    hand.hidden = event.target.value !== 'moves';
  } }, h('legend', null, 'Kind'), KINDS.map(([value, label], index) => check(label, { type: 'radio', name: 'kind', value, checked: index === 0 })));

  const read = (form) => {
    const data = new FormData(form);
    const kind = data.get('kind');
    const request = { reason: data.get('reason'), moves_per_node: Number(data.get('moves_per_node')) };
    if (kind === 'even') return { ...request, even: true };
    if (kind !== 'moves') return { ...request, [kind]: data.getAll('node').map(Number) };
    const [partitions, from, to] = ['partition', 'from', 'to'].map((name) => data.getAll(name));
    return { ...request, moves: partitions.flatMap((partition, index) => partition === '' ? []
      : [{ partition: Number(partition), from: Number(from[index]), to: Number(to[index]) }]) };
  };
  return ask({
    title: 'Make a plan', verb: 'Run it', danger: true,
    body: [kinds, choices, hand, h('div', { class: 'row' },
      field('Moves of a node at a time', number('moves_per_node', '', { value: 2, min: 1, max: 1000, required: true })),
      field('Reason', h('input', { name: 'reason', maxlength: 1000 })))],
    submit: async (form) => { notice(`plan ${(await post('/v1/plans', { ...read(form), run: true })).number} runs`); },
    extra: [
      { label: 'Dry run', run: async (form) => shortMoves(await dryRun(read(form))).filter(Boolean) },
      { label: 'Save as a proposal', run: async (form) => { notice(`plan ${(await post('/v1/plans', read(form))).number} is proposed`); } },
    ],
  });
}
