// All tests of the console, one after another, in one browser and against one cluster.

import { after, before } from 'node:test';

import { endBrowser, startBrowser } from './browser.mjs';
import { furnish, start, stop } from './cluster.mjs';

before(async () => {
  await Promise.all([startBrowser(), start()]);
  await furnish();
}, { timeout: 90000 });

after(async () => {
  await endBrowser();
  await stop('SIGKILL');
});

await import('./pages.mjs');
await import('./stores.mjs');
await import('./plans.mjs');
await import('./nodes.mjs');
await import('./users.mjs');
await import('./sessions.mjs');
await import('./keyboard.mjs');
await import('./looks.mjs');
await import('./long.mjs');
