// One plan: its moves, its progress, and what can be done with it.

import { post, remove } from '../api.js';
import { action, confirm } from '../dialog.js';
import { h } from '../dom.js';
import { bytes, plural, seconds, time } from '../format.js';
import { facts, heading, progress, section, state } from '../parts.js';
import { maker, moves, reasons, summary } from '../plan_parts.js';

export const title = (page) => `Plan ${page.parameters[0]}`;

export async function load(page) {
  const plan = await page.get(`/v1/plans/${encodeURIComponent(page.parameters[0])}`, ['plans', 'routing']);
  if (plan.state === 'running') page.soon(['plans'], 1000);
  return plan;
}

export function draw(page, plan) {
  const path = `/v1/plans/${plan.number}`;
  const is = (...states) => states.includes(plan.state);
  return [
    heading(`Plan ${plan.number}`, state(plan.state), h('span', { class: 'actions' },
      is('proposed') && action('Run', { key: 'run', run: () => confirm({
        title: `Run plan ${plan.number}`, verb: 'Run it', text: `${summary(plan)}.`, submit: () => post(`${path}/run`) }) }),
      is('running') && action('Pause', { key: 'pause', done: `plan ${plan.number} is paused`, run: () => post(`${path}/pause`) }),
      is('paused') && action('Resume', { key: 'resume', done: `plan ${plan.number} runs`, run: () => post(`${path}/resume`) }),
      is('proposed', 'running', 'paused') && action('Cancel', { key: 'cancel', danger: true, run: () => confirm({
        title: `Cancel plan ${plan.number}`, verb: 'Cancel the plan', text: 'Partitions that have not switched stay where they are. Those that have switched do not go back.',
        submit: () => remove(path) }) }))),
    plan.reason && h('ul', { class: 'reasons' }, reasons(plan).map((reason) => h('li', null, reason))),
    plan.stuck.length > 0 && h('ul', { class: 'reasons' }, plan.stuck.map(({ store, partitions, error }) =>
      h('li', null, `store ${store} did not move with ${plural(partitions.length, 'partition')}: ${error}`))),
    facts([
      ['by', maker(plan)], ['made', time(plan.made_unix_ms)], plan.ended_unix_ms !== null && ['ended', time(plan.ended_unix_ms)],
      ['to fetch', bytes(plan.bytes)], ['from other zones', bytes(plan.bytes_between_zones)], ['takes about', seconds(plan.seconds)],
      ['moves of a node at a time', plan.moves_per_node], plan.leaving.length > 0 && ['leaving', plan.leaving.map((node) => `node ${node}`).join(', ')],
      ['partitions done', [`${plan.partitions_done} of ${plan.partitions} `, progress(plan.partitions_done, plan.partitions, 'partitions done')]],
    ]),
    section('Moves', moves(page, plan)),
  ];
}
