// Sign-in and sign-out, roles, and what other web pages cannot do.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';

import { PAGES, button, go, open, row, scene, shows } from './browser.mjs';
import { TOKEN, api, origin, passwordOf } from './cluster.mjs';

const signed_out = { user: null, allow: [/401/] };

scene('a user signs in by name and password, and out', signed_out, async (page, { context }) => {
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.name), 'user');
  await page.getByLabel('User').fill('ann');
  await page.getByLabel('Password').fill('a wrong password');
  await page.keyboard.press('Enter');
  await shows(page.getByRole('alert'), 'wrong user or password');
  await page.getByLabel('Password').fill(passwordOf('ann'));
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await shows(page.locator('#session'), 'ann, admin');
  const [cookie] = await context.cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, 'Strict']);
  await page.reload();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await button(page, 'Sign out').click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.deepEqual(await context.cookies(), []);
  await page.reload();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
});

scene('the token signs in, a wrong one does not', signed_out, async (page) => {
  await page.getByText('With the cluster’s token instead').click();
  await page.getByLabel('Token').fill('a wrong token');
  await button(page, 'Sign in').click();
  await shows(page.getByRole('alert'), 'wrong token');
  await page.getByLabel('Token').fill(TOKEN);
  await button(page, 'Sign in').click();
  await shows(page.locator('#session'), 'token, admin');
});

scene('a session that has ended leads to the sign-in, and back to the same page', { allow: [/401/] }, async (page, { context }) => {
  await go(page, 'stores/feed', 'Store feed');
  await context.clearCookies();
  await page.keyboard.press('r');
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await page.getByLabel('User').fill('ann');
  await page.getByLabel('Password').fill(passwordOf('ann'));
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Store feed' }).waitFor();
});

/// What a viewer may press: nothing that changes the cluster.
const HARMLESS = /^(Sign out|Keyboard shortcuts|Look up|requests|bytes|first owner|5 min|15 min|1 h|Dismiss|partition \d.*)$/;

scene('a viewer sees every page, and no button that changes anything', { user: 'vera', allow: [/403/] }, async (page) => {
  await shows(page.locator('#session'), 'vera, viewer');
  assert.equal(await page.locator('nav').getByRole('link', { name: 'Users' }).count(), 0);
  for (const [address, heading] of PAGES) {
    await go(page, address, heading);
    const names = await page.getByRole('button').evaluateAll((buttons) => buttons
      .filter((one) => !one.matches('.sort')).map((one) => one.getAttribute('aria-label') ?? one.textContent));
    assert.deepEqual(names.filter((name) => !HARMLESS.test(name)), [], `on page ${heading}`);
  }
  await go(page, 'settings', 'Settings');
  await shows(page, 'An admin may change them.');
  assert.equal(await page.locator('main input:enabled').count(), 0);
  // The server decides anyway.
  const refused = await page.evaluate(async () => {
    const { csrf } = await (await fetch('/v1/session')).json();
    const response = await fetch('/v1/stores', { method: 'POST', body: '{"name": "forbidden"}', headers: { 'content-type': 'application/json', 'fondaco-csrf': csrf } });
    return [response.status, (await response.json()).error.message];
  });
  assert.deepEqual(refused, [403, 'vera is a viewer, and this needs the role operator']);
});

scene('an operator has no users and no settings to change', { user: 'otto' }, async (page) => {
  await button(page, 'Sign out').waitFor();
  await go(page, 'settings', 'Settings');
  assert.equal(await page.locator('main input:enabled').count(), 0);
  await go(page, 'users', 'Users');
  await row(page, 'vera').waitFor();
  assert.equal(await page.locator('main').getByRole('button', { name: /Add|Change|Delete/ }).count(), 0);
});

scene('a change without the session’s own header is refused', { allow: [/403/] }, async (page) => {
  const [status, code] = await page.evaluate(async () => {
    const response = await fetch('/v1/stores', { method: 'POST', body: '{"name": "forged"}', headers: { 'content-type': 'application/json', 'fondaco-csrf': 'guessed' } });
    return [response.status, (await response.json()).error.code];
  });
  assert.deepEqual([status, code], [403, 'foreign_origin']);
});

scene('another page in the same browser can change and read nothing', { allow: [/./] }, async (_, { context }) => {
  const server = http.createServer((_, response) => response.setHeader('content-type', 'text/html').end('<!doctype html><title>other</title>')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    for (const host of ['127.0.0.1', 'localhost']) {
      const other = await context.newPage();
      await other.goto(`http://${host}:${server.address().port}/`);
      const read = await other.evaluate(async (target) => {
        await fetch(`${target}/v1/stores`, { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"name": "forged"}', headers: { 'content-type': 'text/plain' } }).catch(() => {});
        const form = document.createElement('form');
        Object.assign(form, { method: 'post', enctype: 'text/plain', action: `${target}/v1/stores`, target: '_blank' });
        const input = Object.assign(document.createElement('input'), { name: '{"name": "forged", "x": "', value: '"}' });
        form.append(input);
        document.body.append(form);
        form.submit();
        return fetch(`${target}/v1/users`, { credentials: 'include' }).then((response) => response.text(), () => null);
      }, origin);
      assert.equal(read, null);
      // And it cannot show the console in a frame.
      await other.evaluate((target) => { document.body.append(Object.assign(document.createElement('iframe'), { src: `${target}/console/` })); }, origin);
      await other.waitForTimeout(300);
      assert.deepEqual(await Promise.all(other.frames().slice(1).map((frame) => frame.locator('#nav').count())), [0]);
      await other.close();
    }
    assert.ok(!(await api('GET', '/v1/stores')).stores.some(({ name }) => name === 'forged'));
  } finally {
    server.close();
  }
});

scene('the security policy is sent with every file, and holds', { allow: [/security policy|Content Security Policy/i] }, async (page) => {
  const response = await page.request.get('/console/');
  const text = await response.text();
  for (const name of ['', 'main.js', 'style.css', 'icon.svg', 'views/overview.js']) {
    const headers = (await page.request.get(`/console/${name}`)).headers();
    const policy = headers['content-security-policy'];
    assert.match(policy, /default-src 'none'/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe|\*/);
    assert.deepEqual([headers['x-frame-options'], headers['x-content-type-options']], ['DENY', 'nosniff']);
  }
  assert.doesNotMatch(text, /https?:\/\//);
  const ran = await page.evaluate(() => {
    document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = true' }));
    document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.ran = true">');
    return new Promise((resolve) => { setTimeout(() => resolve(window.ran), 300); });
  });
  assert.equal(ran, undefined);
});

scene('the files of the console need no session, the data does', signed_out, async (page, { context }) => {
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  for (const path of ['/v1/cluster', '/v1/users', '/v1/events', '/v1/load', '/v1/settings', '/v1/audit']) {
    assert.equal((await context.request.get(path)).status(), 401, path);
  }
  await assert.rejects(open({ user: 'nobody' }));
});
