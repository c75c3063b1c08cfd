// Every page is there, shows what the cluster is and does, and asks nothing of other hosts.

import assert from 'node:assert/strict';

import { PAGES, button, go, isLive, row, scene, shows, until } from './browser.mjs';
import { NODES, PARTITIONS, api, ask } from './cluster.mjs';

scene('every page loads, without an error in the browser’s log', {}, async (page) => {
  for (const [address, heading] of PAGES) {
    await go(page, address, heading);
    assert.equal(await page.locator('.banner.bad').count(), 0, `${address}: ${await page.locator('main').innerText()}`);
    assert.equal(await page.title(), `${heading} · fondaco`);
  }
});

scene('an address that names nothing says so', { allow: [/404/] }, async (page) => {
  await go(page, 'nodes/99', 'Node 99');
  await shows(page, 'no node has this number');
  await go(page, 'stores/nothing', 'Store nothing');
  await page.locator('.banner.bad').waitFor();
  await go(page, 'plans/99', 'Plan 99');
  await page.locator('.banner.bad').waitFor();
  await page.evaluate(() => { location.hash = '#/%'; });
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
});

scene('the overview maps nodes by zone, and partitions with their owners', {}, async (page) => {
  const { nodes } = await api('GET', '/v1/nodes');
  const { owners } = await api('GET', '/v1/routing');
  await page.locator('.zone').first().waitFor();
  assert.equal(await page.locator('.zone').count(), 2);
  for (const { node, partitions } of nodes) await shows(page.locator(`.tile[href="#/nodes/${node}"]`), `${partitions} partitions`);
  assert.equal(await page.locator('.cells > button').count(), PARTITIONS);
  await page.locator('.cells [data-partition="5"]').hover();
  for (const node of owners[5]) await page.locator('.detail').getByRole('link', { name: `node ${node}` }).waitFor();
  // A node that is pointed at leaves only its partitions bright, also when the page is drawn anew.
  await page.locator('.tile[href="#/nodes/1"]').hover();
  await until('the partitions of others are dim', async () => await page.locator('.cells > .dim').count() === PARTITIONS - nodes[0].partitions);
  await page.locator('.cells').evaluate((cells) => { cells.dataset.old = ''; });
  await until('the page is drawn anew', async () => await page.locator('.cells[data-old]').count() === 0);
  assert.equal(await page.locator('.cells > .dim').count(), PARTITIONS - nodes[0].partitions);
  await button(page, 'first owner').click();
  assert.equal(await page.locator('.cells > .owned').count(), PARTITIONS);
  // A colour for each first owner.
  const colours = await page.locator('.cells > button').evaluateAll((cells) => new Set(cells.map((cell) => getComputedStyle(cell).backgroundColor)).size);
  assert.equal(colours, new Set(owners.map(([first]) => first)).size);
});

scene('plots have a line for each node and each store, and say values by the keyboard', {}, async (page) => {
  const quiet = ask(['feed:1']);
  try {
    await go(page, 'load', 'Load');
    const plot = page.locator('figure', { hasText: 'CPU' });
    await until('a line for each node', async () => await plot.locator('path.line').count() === NODES.length);
    for (const node of NODES) await shows(plot.locator('.legend'), `node ${node}`);
    await until('a line with points', async () => /L/.test(await plot.locator('path.line').first().getAttribute('d')));
    await shows(page.locator('section', { hasText: 'Stores' }).locator('.legend'), 'feed');
    await plot.locator('.plot').focus();
    await page.keyboard.press('ArrowLeft');
    assert.match(await plot.locator('.readout').innerText(), /^\d\d:\d\d:\d\d$/);
    await button(page, '1 h').click();
    assert.equal(await button(page, '1 h').getAttribute('aria-pressed'), 'true');
    // The figures go on by themselves.
    const times = () => plot.locator('.times small').last().innerText();
    const before = await times();
    await until('the plot goes on', async () => await times() !== before);
  } finally {
    quiet();
  }
});

scene('hot keys are named, and names are text', {}, async (page) => {
  const hostile = 'feed:<img src=x onerror=alert(1)>';
  const quiet = ask(['feed:7', 'feed:7', hostile]);
  try {
    await go(page, 'load', 'Load');
    await shows(row(page, '7'), 'feed');
    await shows(page, hostile.slice(5));
    await page.locator('tbody').getByRole('link', { name: '7', exact: true }).click();
    await page.getByRole('heading', { name: 'Look-up' }).waitFor();
    await shows(page.locator('pre.value'), 'first 7');
  } finally {
    quiet();
  }
});

scene('a key is looked up: its value, its partition, its nodes', {}, async (page) => {
  await go(page, 'lookup', 'Look-up');
  await page.getByLabel('Key', { exact: true }).fill('feed:42');
  await page.keyboard.press('Enter');
  await shows(page.locator('pre.value'), 'first 42');
  const where = await api('GET', '/v1/where?key=feed:42');
  await shows(page.locator('dl', { hasText: 'partition' }), String(where.partition));
  assert.deepEqual(await page.locator('.owners a').allInnerTexts(), where.owners.map(({ node }) => `node ${node}`));
  await page.getByLabel('Key', { exact: true }).fill('feed:nothing');
  await button(page, 'Look up').click();
  await shows(page, 'The store has no such key.');
  await page.getByLabel('Key', { exact: true }).fill('feed:%34%32');
  await page.getByLabel('The key is percent-encoded').check();
  await button(page, 'Look up').click();
  await shows(page.locator('pre.value'), 'first 42');
});

scene('decisions have reasons, and what they were made of', {}, async (page) => {
  await go(page, 'decisions', 'Decisions');
  const latest = page.locator('.decisions > li').first();
  await latest.locator('.reasons li').first().waitFor();
  const number = await latest.getByRole('link').first().innerText();
  await until('a new decision appears by itself', async () => await latest.getByRole('link').first().innerText() !== number);
  await latest.getByRole('link').first().click();
  await page.getByText('What it was made of').click();
  await shows(page.locator('pre'), '"nodes"');
});

scene('changes appear by themselves', { init: () => {
  // Without the clock: only events make the page ask again.
  window.setInterval = () => 0;
} }, async (page) => {
  await isLive(page);
  await go(page, 'stores', 'Stores');
  await api('POST', '/v1/stores', { name: 'appears', kind: 'batch' });
  await row(page, 'appears').waitFor({ timeout: 5000 });
  await api('DELETE', '/v1/stores/appears?now=true');
  await row(page, 'appears').waitFor({ state: 'detached', timeout: 5000 });
  await go(page, 'users', 'Users');
  await api('PUT', '/v1/users/eva', { password: 'a long password', stores: [], writes: [], admin: false, role: null });
  await row(page, 'eva').waitFor({ timeout: 5000 });
  await api('DELETE', '/v1/users/eva');
  await row(page, 'eva').waitFor({ state: 'detached', timeout: 5000 });
});

scene('the log of events names the user and the change', {}, async (page, { context }) => {
  await go(page, 'stores', 'Stores');
  const { csrf } = await (await context.request.get('/v1/session')).json();
  assert.equal((await context.request.post('/v1/stores', { data: { name: 'logged', kind: 'batch' }, headers: { 'fondaco-csrf': csrf } })).status(), 201);
  await go(page, 'events', 'Events');
  await row(page, 'POST /v1/stores').filter({ hasText: 'ann' }).first().waitFor();
  await page.getByRole('searchbox').fill('logged');
  await api('DELETE', '/v1/stores/logged?now=true');
  await row(page, 'DELETE /v1/stores/logged').waitFor();
  assert.ok((await page.locator('tbody tr').allInnerTexts()).every((text) => text.includes('logged')));
});
