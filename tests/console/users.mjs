// Users are added, changed and removed; settings are changed.

import assert from 'node:assert/strict';

import { agree, button, dialog, go, open, row, scene, shows, until } from './browser.mjs';
import { api } from './cluster.mjs';

scene('a user is added, changed and removed', { allow: [/400/] }, async (page) => {
  await go(page, 'users', 'Users');
  await button(page, 'Add a user').click();
  await dialog(page).getByLabel('Name', { exact: true }).fill('paul');
  await dialog(page).getByLabel('Password').fill('short');
  await button(dialog(page), 'Add').click();
  await shows(dialog(page), 'a password has 8 to 1024 bytes');
  await dialog(page).getByLabel('Password').fill('paul has a password');
  await dialog(page).getByLabel('Role').selectOption('viewer');
  await dialog(page).getByLabel('Stores to read').fill('feed books-*');
  await agree(page, 'Add');
  await shows(row(page, 'paul'), 'viewer');
  await shows(row(page, 'paul'), 'books-*');

  const theirs = await open({ user: 'paul' });
  await shows(theirs.page.locator('#session'), 'paul, viewer');

  await button(page, 'Change paul').click();
  await dialog(page).getByLabel('Role').selectOption('operator');
  await agree(page, 'Change');
  await shows(row(page, 'paul'), 'operator');
  const paul = (await api('GET', '/v1/users')).users.find(({ name }) => name === 'paul');
  assert.deepEqual([paul.role, paul.stores], ['operator', ['feed', 'books-*']]);

  await button(page, 'Delete paul').click();
  await agree(page, 'Delete');
  await row(page, 'paul').waitFor({ state: 'detached' });
  // The session ends with the user.
  await theirs.page.getByRole('heading', { name: 'Sign in' }).waitFor({ timeout: 35000 });
  await theirs.context.close();
});

scene('settings are changed, with units, and wrong ones are refused', { allow: [/400/] }, async (page) => {
  await go(page, 'settings', 'Settings');
  const field = page.locator('input[name="client-idle-seconds"]');
  const form = page.locator('form', { has: field });
  const value = async () => (await api('GET', '/v1/settings')).settings.find(({ name }) => name === 'client-idle-seconds').value;
  await field.fill('15min');
  await button(form, 'Change').click();
  await until('it is changed', async () => await value() === 900);
  await until('the field follows', async () => await field.inputValue() === '900');
  await field.fill('much');
  await button(form, 'Change').click();
  await shows(page.locator('#notices'), 'not a number');
  // What another admin changes is there at once, but not in a field that is being written in.
  await field.fill('800');
  await api('PATCH', '/v1/settings', { 'client-idle-seconds': 600, 'client-stall-seconds': 31 });
  await until('the others follow', async () => await page.locator('input[name="client-stall-seconds"]').inputValue() === '31');
  assert.equal(await field.inputValue(), '800');
  await api('PATCH', '/v1/settings', { 'client-stall-seconds': 30 });
});

scene('the balance is set by its form, and set back before the page has heard of it', {}, async (page) => {
  await page.route('**/v1/settings', async (route) => {
    const response = await route.fetch();
    if (route.request().method() === 'GET') await new Promise((done) => { setTimeout(done, 1000); });
    await route.fulfill({ response });
  });
  await go(page, 'settings', 'Settings');
  const form = page.locator('form', { hasText: 'What the cluster does about load by itself' });
  await form.getByLabel('Off: the cluster moves nothing by itself').check();
  await button(form, 'Change').click();
  const mode = async () => (await api('GET', '/v1/settings')).settings.find(({ name }) => name === 'balance-mode').value;
  await until('it is off', async () => await mode() === 0);
  await form.getByLabel('Propose').check();
  await button(form, 'Change').click();
  await until('it is on', async () => await mode() === 1);
});
