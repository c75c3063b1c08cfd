// Plans: proposed, approved, paused, resumed, cancelled; partitions in motion on the map.

import assert from 'node:assert/strict';

import { agree, button, dialog, go, scene, shows, until } from './browser.mjs';
import { api } from './cluster.mjs';

const stateOf = (page) => page.locator('main .heading .badge').first().innerText();

/// Moves of partitions within their zones, where the other node of the zone does not have them.
async function movable(count) {
  const { owners } = await api('GET', '/v1/routing');
  const other = { 1: 3, 2: 4, 3: 1, 4: 2 };
  return owners.map((nodes, partition) => ({ partition, from: nodes[0], to: other[nodes[0]] }))
    .filter(({ partition, to }) => !owners[partition].includes(to)).slice(0, count);
}

const slowly = (bytes) => api('PATCH', '/v1/settings', { 'move-rate-bytes-per-second': bytes });

scene('a plan is made by hand as a proposal, approved, and done', {}, async (page) => {
  const [{ partition, from, to }] = await movable(1);
  await go(page, 'plans', 'Plans');
  await button(page, 'Make a plan').click();
  await dialog(page).getByLabel('Move partitions by hand').check();
  await dialog(page).getByLabel('partition', { exact: true }).fill(String(partition));
  await dialog(page).getByLabel('from node').fill(String(from));
  await dialog(page).getByLabel('to node').fill(String(to));
  await dialog(page).getByLabel('Reason').fill('to try it');
  await button(dialog(page), 'Dry run').click();
  await shows(dialog(page), `${partition}: ${from} → ${to}`);
  await agree(page, 'Save as a proposal');
  const [plan] = (await api('GET', '/v1/plans')).plans;
  assert.equal(plan.state, 'proposed');

  await go(page, '', 'Overview');
  await shows(page.locator('.problems'), 'is proposed');
  await page.locator('.problems').getByRole('link', { name: `plan ${plan.number}` }).click();
  await page.getByRole('heading', { name: `Plan ${plan.number}` }).waitFor();
  await shows(page, 'to try it');
  await button(page, 'Run').click();
  await agree(page, 'Run it');
  await until('the plan is done', async () => await stateOf(page) === 'done', 30000);
  assert.ok((await api('GET', '/v1/routing')).owners[partition].includes(to));
  assert.equal(await button(page, 'Run').count(), 0);
});

scene('a running plan is shown on the map, paused, resumed and cancelled', {}, async (page) => {
  await slowly(4096);
  const moves = await movable(6);
  const { number } = await api('POST', '/v1/plans', { moves, moves_per_node: 1, reason: 'slow', run: true });
  try {
    await page.locator('.cells > .moves').first().waitFor();
    await shows(page.locator('section', { hasText: 'Under way' }), `plan ${number}`);
    await go(page, `plans/${number}`, `Plan ${number}`);
    await button(page, 'Pause').click();
    await until('the plan is paused', async () => await stateOf(page) === 'paused');
    await button(page, 'Resume').click();
    await until('the plan runs', async () => await stateOf(page) === 'running');
    await button(page, 'Cancel').click();
    await agree(page, 'Cancel the plan');
    await until('the plan ends', async () => await stateOf(page) === 'cancelled');
  } finally {
    await slowly(0);
    await until('nothing moves', async () => !(await api('GET', '/v1/plans')).plans.some(({ state }) => ['running', 'paused', 'cancelling'].includes(state)));
  }
});

scene('a plan that cannot be is refused in the dialog', { allow: [/4\d\d/] }, async (page) => {
  await go(page, 'plans', 'Plans');
  await button(page, 'Make a plan').click();
  await dialog(page).getByLabel('Move partitions by hand').check();
  await dialog(page).getByLabel('partition', { exact: true }).fill('4000');
  await dialog(page).getByLabel('from node').fill('1');
  await dialog(page).getByLabel('to node').fill('2');
  await button(dialog(page), 'Run it').click();
  await dialog(page).locator('.banner.bad').waitFor();
  await button(dialog(page), 'Cancel').click();
});
