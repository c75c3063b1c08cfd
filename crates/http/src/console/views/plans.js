// The plans, the latest first.

import { action } from '../dialog.js';
import { time } from '../format.js';
import { heading, planLink, progress, state } from '../parts.js';
import { makePlan, maker, reasons, summary } from '../plan_parts.js';
import { table } from '../table.js';

export const title = 'Plans';

export async function load(page) {
  const [{ plans }, { nodes }] = await Promise.all([page.get('/v1/plans', ['plans', 'routing']), page.get('/v1/nodes', ['nodes'])]);
  if (plans.some((plan) => plan.state === 'running')) page.soon(['plans'], 2000);
  return { plans, nodes };
}

export const draw = (page, { plans, nodes }) => [
  heading('Plans', action('Make a plan', { run: () => makePlan(nodes) })),
  table(page, {
    id: 'plans', label: 'Plans', rows: plans, key: ({ number }) => number, empty: 'No plan was made in the last day.',
    columns: [
      { name: 'Plan', cell: ({ number }) => planLink(number), by: ({ number }) => number },
      { name: 'State', cell: (plan) => state(plan.state), by: (plan) => plan.state },
      { name: 'By', cell: maker, by: maker },
      { name: 'Made', cell: (plan) => time(plan.made_unix_ms), by: (plan) => plan.made_unix_ms },
      { name: 'Progress', cell: (plan) => progress(plan.partitions_done, plan.partitions, `plan ${plan.number}`) },
      { name: 'Effect', cell: summary },
      { name: 'Reason', cell: (plan) => reasons(plan)[0] ?? '–' },
    ],
  }),
];
