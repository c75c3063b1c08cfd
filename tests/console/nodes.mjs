// What an operator does to nodes, and nodes that fail.

import assert from 'node:assert/strict';

import { agree, button, dialog, go, row, scene, shows, until } from './browser.mjs';
import { api } from './cluster.mjs';

scene('a node is taken out of service and comes back', { user: 'otto' }, async (page) => {
  await go(page, 'nodes', 'Nodes');
  await button(page, 'Take node 4 out of service').click();
  await agree(page, 'Begin maintenance');
  await shows(row(page, 'node 4'), 'maintenance');
  await button(page, 'End the maintenance of node 4').click();
  await until('the mark is gone', async () => !/maintenance/.test(await row(page, 'node 4').locator('.badges').innerText()));
});

scene('a node is drained, and gets partitions again', { user: 'otto' }, async (page) => {
  await go(page, 'nodes', 'Nodes');
  await button(page, 'Drain node 4').click();
  await shows(dialog(page), 'Node 4 gives up all its partitions, for good.');
  await shows(dialog(page), 'moves of');
  await agree(page, 'Run it');
  const partitions = () => row(page, 'node 4').locator('td[data-label=Partitions]').innerText();
  await until('node 4 is empty', async () => await partitions() === '0', 30000);
  await until('the plan ends', async () => (await api('GET', '/v1/plans')).plans.every(({ state }) => !['running', 'cancelling'].includes(state)));
  await until('node 4 is marked or waits', async () => /Keep|Add/.test(await row(page, 'node 4').innerText()));
  if (await button(page, 'Keep node 4').count()) await button(page, 'Keep node 4').click();
  await button(page, 'Add node 4: give it partitions').click();
  await agree(page, 'Run it');
  await until('node 4 has partitions', async () => Number(await partitions()) > 0, 30000);
  await until('the plan ends', async () => (await api('GET', '/v1/plans')).plans.every(({ state }) => !['running', 'cancelling'].includes(state)), 30000);
});

scene('a node that is gone is shown as absent, and as live when it is back', {}, async (page) => {
  await api('POST', '/v1/dev/members/node-3/stop');
  try {
    await page.locator('.tile.absent[href="#/nodes/3"]').waitFor({ timeout: 20000 });
    await shows(page.locator('.problems'), 'is absent');
  } finally {
    await api('POST', '/v1/dev/members/node-3/start');
  }
  await until('node 3 is live', async () => await page.locator('.tile.absent').count() === 0, 20000);
});

scene('a node’s page has its facts and seven plots', {}, async (page) => {
  await go(page, 'nodes', 'Nodes');
  await page.getByRole('link', { name: 'Plots of node 2' }).click();
  await page.getByRole('heading', { name: 'Node 2' }).waitFor();
  assert.equal(await page.locator('figure.chart').count(), 7);
  await until('each has a line', async () => await page.locator('path.line').count() === 7);
});
