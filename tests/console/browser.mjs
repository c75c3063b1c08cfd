// A browser, and pages of the console in it that remember what went wrong.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import { origin, passwordOf, until } from './cluster.mjs';

const { CHROMIUM, CONSOLE_FAILURES, CONSOLE_FILES, CONSOLE_MODULES } = process.env;
const { chromium } = createRequire(`${CONSOLE_MODULES}/`)('playwright-core');

const TEST_MS_MAX = 60000;
const STEP_MS_MAX = 12000;

let browser = null;
const sessions = new Map(); // user → cookies: a sign-in takes long

export async function startBrowser() {
  browser = await chromium.launch({
    executablePath: CHROMIUM, headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync'],
  });
}

export const endBrowser = () => browser?.close();

/// All pages, by address and heading.
export const PAGES = [
  ['', 'Overview'], ['nodes', 'Nodes'], ['nodes/1', 'Node 1'], ['stores', 'Stores'], ['stores/feed', 'Store feed'], ['stores/carts', 'Store carts'],
  ['load', 'Load'], ['plans', 'Plans'], ['decisions', 'Decisions'], ['lookup', 'Look-up'], ['lookup/feed%3A7', 'Look-up'], ['events', 'Events'],
  ['users', 'Users'], ['settings', 'Settings'],
];

/// A page of a new browser's window, signed in as `user`, or as nobody. `faults` gets what no page may do.
export async function open({ user = 'ann', width = 1280, height = 900, colours = 'light', allow = [], init } = {}) {
  const context = await browser.newContext({ baseURL: origin, viewport: { width, height }, colorScheme: colours, reducedMotion: 'reduce' });
  context.setDefaultTimeout(STEP_MS_MAX);
  if (CONSOLE_FILES) await serveFiles(context);
  if (user) {
    if (!sessions.has(user)) {
      const response = await context.request.post('/v1/session', { data: { user, password: passwordOf(user) } });
      assert.equal(response.status(), 200);
      sessions.set(user, await context.cookies());
    }
    await context.addCookies(sessions.get(user));
  }
  const page = await context.newPage();
  const faults = [];
  const fault = (text) => { if (!allow.some((pattern) => pattern.test(text))) faults.push(text); };
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) fault(`log: ${message.text()} ${message.location().url}`); });
  page.on('pageerror', (error) => fault(`error: ${error.stack}`));
  page.on('request', (request) => { if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith('data:')) fault(`left the origin: ${request.url()}`); });
  await page.exposeFunction('policyViolated', (text) => fault(`security policy: ${text}`));
  await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => {
    window.policyViolated(`${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
  }));
  if (init) await page.addInitScript(init);
  await page.goto('/console/');
  return { page, context, faults };
}

async function serveFiles(context) {
  const kinds = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
  await context.route('**/console/**', async (route) => {
    const { headers } = await fetch(`${origin}/console/`);
    const name = new URL(route.request().url()).pathname.replace('/console/', '') || 'index.html';
    await route.fulfill({ body: readFileSync(`${CONSOLE_FILES}/${name}`), headers: { 'content-security-policy': headers.get('content-security-policy'), 'content-type': kinds[name.split('.').at(-1)] } });
  });
}

/// A test with a page, which fails if the page did something that no page may do.
export const scene = (name, options, work) => test(name, { timeout: options.ms ?? TEST_MS_MAX }, async () => {
  const opened = await open(options);
  try {
    await work(opened.page, opened);
  } catch (error) {
    if (CONSOLE_FAILURES) await opened.page.screenshot({ path: `${CONSOLE_FAILURES}/${name.replace(/\W+/g, '-')}.png` }).catch(() => {});
    if (opened.faults.length) error.message += `\nand the page: ${opened.faults.join('\n')}`;
    throw error;
  } finally {
    // What is under way when the page goes would fail after the test.
    await opened.page.unrouteAll({ behavior: 'wait' });
    await opened.context.close();
  }
  assert.deepEqual(opened.faults, []);
});

/// Goes to a page by its address, and waits until it is drawn.
export async function go(page, address, heading) {
  await page.evaluate((hash) => { location.hash = hash; }, `#/${address}`);
  await page.getByRole('heading', { level: 1, name: heading, exact: true }).waitFor();
}

export const button = (place, name) => place.getByRole('button', { name, exact: true });
export const dialog = (page) => page.getByRole('dialog');
export const row = (page, text) => page.locator('tbody tr', { hasText: text });

/// Waits until a text is on the page.
export const shows = (place, text) => place.getByText(text).first().waitFor();

/// Presses a button of the dialog and waits until the dialog closes.
export async function agree(page, name) {
  await button(dialog(page), name).click();
  await dialog(page).waitFor({ state: 'detached' });
}

/// Waits until the page hears events.
export const isLive = (page) => page.locator('#live.live').waitFor();

export { until };
