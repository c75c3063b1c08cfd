// Takes the pictures of the documentation: a cluster with traffic, a push under way, and a plan that the cluster proposes.

import { setTimeout as sleep } from 'node:timers/promises';

import { button, endBrowser, go, open, row, startBrowser, until } from './browser.mjs';
import { api, ask, build, furnish, push, start, stop } from './cluster.mjs';

const [, , FOLDER] = process.argv;
const TRAFFIC_MS = 75000; // plots begin a minute ago

const setting = (name, value) => api('PATCH', '/v1/settings', { [name]: value });

async function take(name, address, heading, { prepare, wait = 600, ...options } = {}) {
  const { page, context, faults } = await open({ width: 1120, height: 700, ...options });
  await go(page, address, heading);
  await prepare?.(page);
  await sleep(wait);
  await page.screenshot({ path: `${FOLDER}/console-${name}.png` });
  await context.close();
  if (faults.length) throw new Error(faults.join('\n'));
}

await Promise.all([startBrowser(), start()]);
try {
  await furnish();
  await setting('balance-mode', 0);
  await api('POST', '/v1/stores', { name: 'people-you-may-know', kind: 'batch', backups: 2 });
  await push('people-you-may-know', await build('people-you-may-know', 'people-1', 6000, 'people'));
  const keys = (store, count, first) => Array.from({ length: count }, (_, index) => `${store}:${first + index * index}`);
  const quiet = [
    ask([...keys('feed', 8, 1), 'feed:7', 'feed:7', 'feed:7', 'feed:7', ...keys('people-you-may-know', 6, 3)], 'node-1'),
    ask([...keys('feed', 6, 40), 'feed:7', 'carts:12', 'people-you-may-know:9'], 'node-2'),
    ask([...keys('feed', 3, 70), ...keys('people-you-may-know', 3, 90), 'carts:5'], 'node-3'),
    ask([...keys('people-you-may-know', 2, 500), 'carts:12'], 'node-4'),
  ];
  await sleep(TRAFFIC_MS);

  // A node gets more than it should: the cluster proposes to move a partition.
  const { nodes } = await api('GET', '/v1/load');
  const most = Math.max(...nodes.map(({ load }) => load.requests_per_second));
  await api('PATCH', '/v1/settings', { 'balance-cool-down-ms': 0, 'balance-requests-per-second': Math.round(0.8 * most), 'balance-mode': 1 });
  const decided = () => api('GET', '/v1/decisions?count=20').then(({ decisions }) => decisions.find(({ plan }) => plan !== null));
  await until('a decision to move', decided, 40000);
  await setting('balance-window-ms', 60000); // the next decision would replace the plan
  await take('load', 'load', 'Load');
  await take('decisions', 'decisions', 'Decisions');
  const { plan } = await decided();
  await take('plan', `plans/${plan}`, `Plan ${plan}`);

  const next = await build('feed', 'feed-2', 40000, 'second');
  await setting('fetch-rate-bytes-per-second', 1 << 18);
  await api('POST', '/v1/stores/feed/pushes', { source: next });
  await sleep(5000);
  await take('overview', '', 'Overview');
  await take('store', 'stores/feed', 'Store feed');
  await take('phone', '', 'Overview', { width: 390, height: 780, colours: 'dark' });
  await take('nodes', 'nodes', 'Nodes', { prepare: async (page) => {
    await button(page, 'Drain node 4').click();
    await row(page, 'node 4').waitFor();
  } });
  quiet.forEach((end) => end());
} finally {
  await endBrowser();
  await stop('SIGKILL');
}
