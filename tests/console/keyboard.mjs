// The main actions by the keyboard alone: the focus can be seen, dialogs keep it, Escape closes them.

import assert from 'node:assert/strict';

import { dialog, go, row, scene, shows, until } from './browser.mjs';
import { api } from './cluster.mjs';

/// The element with the focus: its name, and whether the focus can be seen.
const focused = (page) => page.evaluate(() => {
  const active = document.activeElement;
  const style = getComputedStyle(active);
  return {
    name: active.getAttribute('aria-label') ?? active.labels?.[0]?.textContent ?? active.textContent, tag: active.tagName,
    seen: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1) || active === document.body || active.matches('main, h1'),
    inside: Boolean(active.closest('dialog')),
  };
});

/// Presses Tab until the element with this name has the focus.
async function tabTo(page, name) {
  for (let times = 0; times < 150; times += 1) {
    await page.keyboard.press('Tab');
    const at = await focused(page);
    assert.ok(at.seen, `the focus on ${at.tag} "${at.name}" cannot be seen`);
    if (at.name.startsWith(name)) return;
  }
  assert.fail(`Tab does not reach "${name}"`);
}

scene('pages are reached by Tab, by letters, and the skip link', {}, async (page) => {
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await tabTo(page, 'Skip to the page');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await page.getByRole('heading', { name: 'Nodes', level: 1 }).waitFor();
  await until('the heading has the focus', async () => (await focused(page)).tag === 'H1');
  await tabTo(page, 'Plots of node 1');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Node 1', exact: true }).waitFor();
  await page.keyboard.press('?');
  await shows(dialog(page), 'Close a dialog');
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  await page.keyboard.press('g');
  await page.keyboard.press('k');
  await page.getByRole('heading', { name: 'Look-up' }).waitFor();
  await page.keyboard.press('/');
  assert.equal((await focused(page)).tag, 'INPUT');
  // Letters in a field are letters.
  await page.keyboard.type('gs?');
  assert.equal(await page.locator('input[name=key]').inputValue(), 'gs?');
});

scene('a store is created and dropped by the keyboard alone', {}, async (page) => {
  await go(page, 'stores', 'Stores');
  await tabTo(page, 'Create a store');
  await page.keyboard.press('Enter');
  await dialog(page).waitFor();
  assert.equal((await focused(page)).tag, 'INPUT');
  await page.keyboard.type('typed');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Store typed' }).waitFor();
  await tabTo(page, 'Drop');
  await page.keyboard.press('Enter');
  await page.keyboard.type('typed');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Stores' }).waitFor();
  await row(page, 'typed').waitFor({ state: 'detached' });
  await api('DELETE', '/v1/stores/typed?now=true').catch(() => {});
});

scene('a dialog keeps the focus, closes by Escape, and gives the focus back', {}, async (page) => {
  await go(page, 'nodes', 'Nodes');
  await tabTo(page, 'Drain node 1');
  await page.keyboard.press('Enter');
  await shows(dialog(page), 'gives up all its partitions');
  for (const key of [...Array(8).fill('Tab'), ...Array(8).fill('Shift+Tab')]) {
    await page.keyboard.press(key);
    const at = await focused(page);
    assert.ok(at.inside || at.tag === 'BODY', `${key}: the focus went to "${at.name}"`);
  }
  // What a dangerous dialog does is not what Enter does at first.
  await page.keyboard.press('Escape');
  await dialog(page).waitFor({ state: 'detached' });
  assert.equal((await focused(page)).name, 'Drain node 1');
  assert.ok(!(await api('GET', '/v1/plans')).plans.some(({ state }) => state === 'running'));
});

scene('the focus of a dangerous dialog is not on what it does', {}, async (page) => {
  await go(page, 'nodes', 'Nodes');
  await tabTo(page, 'Take node 2 out of service');
  await page.keyboard.press('Enter');
  await dialog(page).waitFor();
  assert.equal((await focused(page)).name, 'Cancel');
  await page.keyboard.press('Enter');
  await dialog(page).waitFor({ state: 'detached' });
  assert.equal((await api('GET', '/v1/nodes')).nodes[1].mark, null);
});

scene('the focus stays where it is while the page changes', {}, async (page) => {
  await go(page, 'stores', 'Stores');
  await tabTo(page, 'feed');
  await api('POST', '/v1/stores', { name: 'before-feed', kind: 'batch' });
  await row(page, 'before-feed').waitFor();
  assert.equal((await focused(page)).name, 'feed');
  await api('DELETE', '/v1/stores/before-feed?now=true');
  await row(page, 'before-feed').waitFor({ state: 'detached' });
  assert.equal((await focused(page)).name, 'feed');
});

scene('partitions are read by arrow keys', {}, async (page) => {
  await page.locator('.cells').waitFor();
  await page.locator('.cells [tabindex="0"]').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await shows(page.locator('.detail'), 'partition 2');
});
