// A page that stays open: it outlives the server, and does not grow.

import assert from 'node:assert/strict';

import { go, isLive, row, scene } from './browser.mjs';
import { api, start, stop } from './cluster.mjs';

scene('a page outlives a restart of the server, and is live again', { allow: [/ERR_|status of 5/], ms: 90000 }, async (page) => {
  await go(page, 'stores', 'Stores');
  await isLive(page);
  await stop('SIGKILL');
  await page.locator('#live:not(.live)').waitFor();
  // What was there stays there, with a word that it is old.
  await page.locator('.banner.bad', { hasText: 'does not answer' }).waitFor({ timeout: 20000 });
  await row(page, 'feed').waitFor();
  await start();
  await page.locator('#live.live').waitFor({ timeout: 65000 });
  await page.locator('.banner.bad').waitFor({ state: 'detached' });
  await api('POST', '/v1/stores', { name: 'afterwards', kind: 'batch' });
  await row(page, 'afterwards').waitFor();
  await api('DELETE', '/v1/stores/afterwards?now=true');
});

/// Answers of the server from memory, and a clock in the hands of the test, so that a day takes seconds.
function simulate() {
  const ask = window.fetch;
  const simulated = { on: false, answers: new Map(), source: null, now: 0, asked: 0 };
  window.simulated = simulated;
  window.EventSource = class extends EventSource {
    constructor(path) {
      super(path);
      simulated.source = this;
    }
  };
  const real = Date.now;
  Date.now = () => (simulated.on ? simulated.now : real());
  const load = () => ({ cpu_percent: 50 + 40 * Math.sin(simulated.now / 1e6), requests_per_second: simulated.now % 977, p99_microseconds: simulated.now % 499, memory_bytes: 1e8, disk_bytes: 1e9, network_in_bytes_per_second: 5, network_out_bytes_per_second: 7 });
  window.fetch = async (path, options) => {
    if (!simulated.on) {
      const response = await ask(path, options);
      if (options?.method === 'GET' && response.ok) simulated.answers.set(path.split('?')[0], await response.clone().text());
      return response;
    }
    simulated.asked += 1;
    let text = simulated.answers.get(path.split('?')[0]);
    if (path.startsWith('/v1/load/history')) {
      const since = Number(path.split('=')[1]);
      const samples = [];
      for (let at = Math.max(since, simulated.now - 3600000) + 1; at <= simulated.now; at += 30000) samples.push({ at_unix_ms: at, load: load(), stores: [{ store: `store-${Math.floor(at / 7200000)}`, requests_per_second: 3, p99_microseconds: 9 }] });
      text = JSON.stringify({ nodes: [1, 2, 3, 4].map((node) => ({ node, samples })) });
    }
    return new Response(text, { status: 200 });
  };
  /// Lets a number of steps of six minutes pass, with an event of each kind in each.
  simulated.pass = async (steps) => {
    simulated.on = true;
    simulated.now ||= real();
    for (let step = 0; step < steps; step += 1) {
      simulated.now += 360000;
      simulated.source.dispatchEvent(new MessageEvent('change', { data: '{"what": ["nodes", "stores", "plans", "routing", "settings", "decisions", "audit", "users"]}' }));
      simulated.source.dispatchEvent(new MessageEvent('load', { data: '{}' }));
      const before = simulated.asked;
      for (let turn = 0; turn < 50 && (simulated.asked === before || turn < 3); turn += 1) await new Promise((resolve) => { setTimeout(resolve, 0); });
    }
  };
}

/// Numbers of nodes, listeners and bytes, after a collection of garbage.
async function sizes(devtools) {
  for (let times = 0; times < 3; times += 1) await devtools.send('HeapProfiler.collectGarbage');
  const { metrics } = await devtools.send('Performance.getMetrics');
  const value = (name) => metrics.find((metric) => metric.name === name).value;
  return { nodes: value('Nodes'), listeners: value('JSEventListeners'), heap: value('JSHeapUsedSize') };
}

for (const [address, heading] of [['load', 'Load'], ['', 'Overview']]) {
  scene(`page ${heading} does not grow in a day`, { init: simulate, allow: [/./] }, async (page, { context }) => {
    await isLive(page);
    await go(page, address, heading);
    const devtools = await context.newCDPSession(page);
    await devtools.send('Performance.enable');
    await page.waitForTimeout(1000);
    await page.evaluate(() => window.simulated.pass(20));
    const before = await sizes(devtools);
    await page.evaluate(() => window.simulated.pass(220));
    const after = await sizes(devtools);
    assert.ok(await page.evaluate(() => window.simulated.asked) > 240, 'the page did not ask');
    assert.ok(after.nodes <= before.nodes * 1.2 + 100, `nodes: ${before.nodes}, then ${after.nodes}`);
    assert.ok(after.listeners <= before.listeners * 1.2 + 50, `listeners: ${before.listeners}, then ${after.listeners}`);
    assert.ok(after.heap <= before.heap * 1.3 + (1 << 20), `bytes: ${before.heap}, then ${after.heap}`);
  });
}

scene('notices go by themselves, and are never many', { init: () => {
  const later = window.setTimeout;
  window.setTimeout = (work, ms, ...rest) => later(work, ms / 10, ...rest);
} }, async (page) => {
  await go(page, 'settings', 'Settings');
  const submit = page.locator('form.settings').first().getByRole('button', { name: 'Change' });
  for (let times = 0; times < 8; times += 1) await submit.click();
  assert.ok(await page.locator('.notice').count() <= 4);
  await page.locator('.notice').first().waitFor({ state: 'detached', timeout: 10000 });
});
