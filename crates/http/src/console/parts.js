// Small parts that several pages show.

import { h } from './dom.js';
import { bytes, count, share } from './format.js';

export const heading = (text, ...beside) => h('div', { class: 'heading' }, h('h1', { tabindex: -1 }, text), beside);

/// A word in a box; `kind` is good, bad, warn, busy or nothing.
export const badge = (text, kind = '') => h('span', { class: `badge ${kind}` }, text);

const KINDS = {
  serving: 'good', live: 'good', swapped: 'good', done: 'good', running: 'busy', fetching: 'busy', moving: 'busy',
  failed: 'bad', absent: 'bad', 'given-up': 'bad', held: 'warn', proposed: 'warn', paused: 'warn', leaving: 'warn', maintenance: 'warn', late: 'warn',
};
export const state = (word) => badge(word, KINDS[word]);

/// What is notable about a node, as badges.
export const marks = (node) => [
  node.live ? null : state('absent'),
  node.mark && state(node.mark),
  node.backup && badge('backup'),
  node.late.length > 0 && state('late'),
];

export const nodeLink = (node) => node === null || node === undefined ? '–' : h('a', { href: `#/nodes/${Number(node)}` }, `node ${node}`);
export const storeLink = (name) => h('a', { href: `#/stores/${encodeURIComponent(name)}` }, name);
export const planLink = (number) => h('a', { href: `#/plans/${Number(number)}` }, `plan ${number}`);

export const progress = (done, total, label) => h('span', { class: 'progress' },
  h('progress', { max: Math.max(total, 1), value: Math.min(done, Math.max(total, 1)), 'aria-label': label }), h('small', null, share(done, total)));

export const bytesProgress = (done, total, label) =>
  [progress(done, total, label), ' ', h('small', null, `${bytes(done)} of ${bytes(total)}`)];

/// Names and values in a row.
export const facts = (pairs) => h('dl', { class: 'facts' }, pairs.filter(Boolean).map(([name, value]) =>
  h('div', null, h('dt', null, name), h('dd', null, typeof value === 'number' ? count(value) : value))));

export const section = (title, ...children) => h('section', { class: 'panel', 'data-key': `section ${title}` }, h('h2', null, title), children);

/// A row of buttons of which one is chosen.
export const choice = (label, options, chosen, choose) => h('div', { class: 'choice', role: 'group', 'aria-label': label },
  options.map(([value, text]) => h('button', { 'aria-pressed': value === chosen ? 'true' : 'false', onclick: () => choose(value) }, text)));
