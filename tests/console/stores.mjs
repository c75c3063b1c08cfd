// Stores and their versions: created, pushed to, swapped, rolled back, dropped.

import assert from 'node:assert/strict';

import { agree, button, dialog, go, row, scene, shows, until } from './browser.mjs';
import { api, build } from './cluster.mjs';

const current = (page) => page.locator('.facts > div', { hasText: 'current version' }).locator('dd').innerText();

scene('a store is created, pushed to with progress, swapped and rolled back', {}, async (page) => {
  const [one, two] = [await build('books', 'books-1', 2000, 'one'), await build('books', 'books-2', 10000, 'two')];
  await go(page, 'stores', 'Stores');
  await button(page, 'Create a store').click();
  await dialog(page).getByLabel('Name').fill('books');
  await agree(page, 'Create');
  await page.getByRole('heading', { name: 'Store books' }).waitFor();
  await shows(page, 'Nothing was pushed yet.');

  await button(page, 'Push').click();
  await dialog(page).getByLabel('Source').fill(one);
  await button(dialog(page), 'Dry run').click();
  await shows(dialog(page), 'It would be version 1: 2\u202f000 records');
  await agree(page, 'Push');
  await until('version 1 is current', async () => await current(page) === '1');

  // So slowly that progress can be seen.
  await api('PATCH', '/v1/settings', { 'fetch-rate-bytes-per-second': 1 << 18 });
  await button(page, 'Push').click();
  await dialog(page).getByLabel('Source').fill(two);
  await agree(page, 'Push');
  await page.getByRole('heading', { name: 'Push under way' }).waitFor();
  const seen = new Set();
  const bar = page.locator('section', { hasText: 'Push under way' }).locator('progress').first();
  await until('version 2 is current', async () => {
    if (await bar.isVisible()) seen.add(await bar.evaluate(({ value, max }) => Math.round(100 * value / max)).catch(() => 0));
    return await current(page) === '2';
  }, 30000);
  assert.ok([...seen].some((percent) => percent > 0 && percent < 100), `progress: ${[...seen]}`);
  await api('PATCH', '/v1/settings', { 'fetch-rate-bytes-per-second': 0 });
  await page.getByRole('heading', { name: 'Last push' }).waitFor();

  await button(page, 'Roll back').click();
  await agree(page, 'Roll back');
  await until('version 1 is current again', async () => await current(page) === '1');
  await button(page, 'Swap to version 2').click();
  await agree(page, 'Serve version 2');
  await until('version 2 is current again', async () => await current(page) === '2');
  const { values: [value] } = await api('POST', '/v1/lookup', { keys: ['books:5'] });
  assert.match(value.utf8, /^two 5 /);

  await button(page, 'Drop').click();
  await dialog(page).getByLabel('to confirm').fill('other');
  await button(dialog(page), 'Drop the store').click();
  await shows(dialog(page), 'the typed name differs');
  await dialog(page).getByLabel('to confirm').fill('books');
  await agree(page, 'Drop the store');
  await page.getByRole('heading', { name: 'Stores' }).waitFor();
  await row(page, 'books').waitFor({ state: 'detached' });
  await button(page, 'Restore a dropped store').click();
  await dialog(page).getByLabel('Name').fill('books');
  await agree(page, 'Restore');
  await row(page, 'books').waitFor();
});

scene('a push of nothing is refused in the dialog, with the server’s reason', { allow: [/422/] }, async (page) => {
  await go(page, 'stores/feed', 'Store feed');
  await button(page, 'Push').click();
  await dialog(page).getByLabel('Source').fill('file:///nothing/there');
  await button(dialog(page), 'Push').click();
  await dialog(page).locator('.banner.bad').waitFor();
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
});

scene('a push is cancelled', {}, async (page) => {
  await api('PATCH', '/v1/settings', { 'fetch-rate-bytes-per-second': 1 << 16 });
  try {
    await go(page, 'stores/feed', 'Store feed');
    await button(page, 'Push').click();
    await dialog(page).getByLabel('Source').fill(await build('feed', 'feed-2', 20000, 'second'));
    await agree(page, 'Push');
    await button(page, 'Cancel the push').click();
    await agree(page, 'Cancel the push');
    await page.getByRole('heading', { name: 'Last push' }).waitFor();
    await until('the push is cancelled', async () => (await api('GET', '/v1/stores/feed/push')).state === 'cancelled');
    await page.locator('.badge', { hasText: 'cancelled' }).first().waitFor();
    assert.equal(await current(page), '1');
  } finally {
    await api('PATCH', '/v1/settings', { 'fetch-rate-bytes-per-second': 0 });
  }
});

scene('a table is sorted by its headers', {}, async (page) => {
  await go(page, 'stores', 'Stores');
  const names = () => page.locator('tbody tr td:first-child').allInnerTexts();
  await button(page, 'Store').click();
  const up = await names();
  await button(page, 'Store').click();
  assert.deepEqual(await names(), up.toReversed());
  assert.equal(await page.locator('th', { hasText: 'Store' }).first().getAttribute('aria-sort'), 'descending');
});

scene('the schemas of a store are shown with their fields', {}, async (page) => {
  await api('POST', '/v1/stores', { name: 'members', kind: 'batch', value_type: 'avro', key_type: '(string,integer)' });
  const schema = (...fields) => ({ type: 'record', name: 'Member', fields: [{ name: 'id', type: 'long' }, ...fields] });
  await api('POST', '/v1/stores/members/schemas', { schema: schema() });
  await api('POST', '/v1/stores/members/schemas', { schema: schema({ name: 'city', type: 'string', default: 'Venice' }) });
  await go(page, 'stores/members', 'Store members');
  await shows(page, '(string,integer)');
  await shows(page, 'id: long, city: string = "Venice"');
  assert.equal(await page.getByRole('table', { name: 'Schemas' }).locator('tbody tr').count(), 2);
});

scene('the records of each schema are counted on demand', {}, async (page) => {
  await api('POST', '/v1/stores', { name: 'counted', kind: 'versioned', value_type: 'avro' });
  await api('POST', '/v1/stores/counted/schemas', { schema: { type: 'record', name: 'Member', fields: [{ name: 'id', type: 'long' }] } });
  await go(page, 'stores/counted', 'Store counted');
  await button(page, 'Count records').click();
  await dialog(page).getByRole('table', { name: 'Records by schema' }).waitFor();
  assert.equal(await dialog(page).locator('.banner').count(), 0, 'no node is missing');
  await button(dialog(page), 'Close').click();
  await dialog(page).waitFor({ state: 'detached' });
});
