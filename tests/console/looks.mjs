// Light and dark, wide and narrow: everything can be read, named and reached.

import assert from 'node:assert/strict';

import { PAGES, button, dialog, go, scene } from './browser.mjs';

const CONTRAST_MIN = 4.5;

/// Texts of the page whose contrast with what is behind them is too low.
const faint = (page) => page.evaluate((least) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, index) => value * a / 255 + below[index] * (1 - a / 255));
  const behind = (element) => {
    if (!element) return rgba(getComputedStyle(document.documentElement).backgroundColor).slice(0, 3);
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] === 255 ? colour.slice(0, 3) : over(colour, behind(element.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true }) || element.closest('noscript, [disabled], [aria-busy]')) continue;
    const ground = behind(element);
    let colour = rgba(getComputedStyle(element).color);
    for (let at = element; at; at = at.parentElement) colour[3] *= Number(getComputedStyle(at).opacity);
    colour = over(colour, ground);
    const [high, low] = [light(colour), light(ground)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < least) found.push(`${contrast.toFixed(1)}: "${texts.currentNode.data.trim().slice(0, 30)}" in ${element.tagName}.${element.className}`);
  }
  return [...new Set(found)];
}, CONTRAST_MIN);

for (const colours of ['light', 'dark']) {
  scene(`all texts can be read in ${colours} colours`, { colours }, async (page) => {
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const [red] = ground.match(/\d+/g).map(Number);
    assert.ok(colours === 'dark' ? red < 64 : red > 192, ground);
    for (const [address, heading] of PAGES) {
      await go(page, address, heading);
      assert.deepEqual(await faint(page), [], `on page ${heading}`);
    }
    await go(page, 'nodes', 'Nodes');
    await button(page, 'Drain node 1').click();
    await dialog(page).waitFor();
    assert.deepEqual(await faint(page), []);
  });
}

/// What is wider than the window.
const tooWide = (page) => page.evaluate(() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (element) => element && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
  const wide = [...document.querySelectorAll('body *')].filter((element) => element.getBoundingClientRect().right > width + 1 && !scrolls(element.parentElement) && element.checkVisibility());
  return { by: document.documentElement.scrollWidth - width, wide: wide.map((element) => `${element.tagName}.${element.className}`).slice(0, 5) };
});

for (const width of [390, 768]) {
  scene(`no page scrolls sideways at a width of ${width}`, { width, height: 844 }, async (page) => {
    for (const [address, heading] of PAGES) {
      await go(page, address, heading);
      assert.deepEqual(await tooWide(page), { by: 0, wide: [] }, `on page ${heading}`);
    }
    await go(page, 'plans', 'Plans');
    await button(page, 'Make a plan').click();
    await dialog(page).waitFor();
    const box = await dialog(page).boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= width);
    await page.keyboard.press('Escape');
    await go(page, 'users', 'Users');
    await button(page, 'Add a user').click();
    assert.equal((await tooWide(page)).by, 0);
  });
}

scene('everything that can be pressed or filled in has a name', {}, async (page) => {
  for (const [address, heading] of PAGES) {
    await go(page, address, heading);
    const nameless = await page.locator('button, a, input, select, [role=img]').evaluateAll((elements) => elements
      .filter((one) => one.checkVisibility() && !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.[0]?.textContent.trim())).map((one) => one.outerHTML));
    assert.deepEqual(nameless, [], `on page ${heading}`);
    assert.equal(await page.getByRole('heading', { level: 1 }).count(), 1);
  }
});

scene('the sign-in fits a phone', { user: null, width: 390, height: 844, allow: [/401/] }, async (page) => {
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal((await tooWide(page)).by, 0);
  assert.deepEqual(await faint(page), []);
});
