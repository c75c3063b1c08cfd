// The frame around the pages: which page the address names, the session, and the keys.

import { may, restore, session, signIn, signOut } from './api.js';
import { ask, field, notice } from './dialog.js';
import { h } from './dom.js';
import { watch } from './live.js';
import { Page, current, refresh } from './page.js';
import * as decisions from './views/decisions.js';
import * as events from './views/events.js';
import * as load from './views/load.js';
import * as lookup from './views/lookup.js';
import * as node from './views/node.js';
import * as nodes from './views/nodes.js';
import * as overview from './views/overview.js';
import * as plan from './views/plan.js';
import * as plans from './views/plans.js';
import * as settings from './views/settings.js';
import * as store from './views/store.js';
import * as stores from './views/stores.js';
import * as users from './views/users.js';

// The name in the address, the title, the key after `g`, the view, and the view of one of its things.
const PAGES = [
  ['', 'Overview', 'o', overview], ['nodes', 'Nodes', 'n', nodes, node], ['stores', 'Stores', 's', stores, store],
  ['load', 'Load', 'l', load], ['plans', 'Plans', 'p', plans, plan], ['decisions', 'Decisions', 'd', decisions],
  ['lookup', 'Look-up', 'k', lookup], ['events', 'Events', 'e', events], ['users', 'Users', 'u', users, null, 'admin'],
  ['settings', 'Settings', 't', settings],
];

const place = (id) => document.getElementById(id);
let stop = null;

function show(focus) {
  const segments = location.hash.replace(/^#\/?/, '').split('/').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const [name, , , list, one] = PAGES.find(([path]) => path === segments[0]) ?? PAGES[0];
  const parameters = segments.slice(1).filter((part) => part !== '');
  current?.leave();
  const page = new Page(parameters.length > 0 && one ? one : list, parameters, place('main'));
  place('nav').replaceChildren(...PAGES.filter(([, , , , , role]) => !role || may(role)).map(([path, title, key]) =>
    h('a', { href: `#/${path}`, 'aria-current': path === name ? 'page' : null, title: `g ${key}` }, title)));
  place('nav').querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  place('main').replaceChildren(h('p', { class: 'quiet' }, 'Loading …'));
  page.load().then(() => {
    if (focus && current === page) place('main').querySelector('h1')?.focus();
  });
}

function showSession() {
  const { user, role, sign_in } = session;
  place('session').replaceChildren(...[
    sign_in && h('span', { class: 'quiet' }, `${user ?? 'token'}, ${role}`),
    sign_in && h('button', { onclick: () => signOut().then(start, (failure) => notice(failure.message, true)) }, 'Sign out'),
    h('button', { onclick: help, 'aria-label': 'Keyboard shortcuts' }, '?'),
  ].filter(Boolean));
}

function showLive(live) {
  place('live').className = live ? 'live' : '';
  place('live').textContent = live ? 'live' : 'not live';
  place('live').title = live ? 'changes appear as they happen' : 'asks every 5 seconds';
}

/// The form in place of the pages, until somebody is signed in.
function showSignIn(message) {
  stop?.();
  stop = null;
  current?.leave();
  document.querySelectorAll('dialog').forEach((dialog) => dialog.close());
  place('nav').replaceChildren();
  place('session').replaceChildren();
  place('live').textContent = '';
  const failure = h('p', { class: 'banner bad', role: 'alert', hidden: !message }, message ?? '');
  const form = h('form', {
    class: 'panel sign-in',
    onsubmit: async (event) => {
      event.preventDefault();
      const { user, password, token } = form.elements;
      try {
        await signIn(token.value ? { token: token.value } : { user: user.value, password: password.value });
        await start();
      } catch (error) {
        failure.hidden = false;
        failure.textContent = error.message;
      }
    },
  }, h('h1', null, 'Sign in'), failure,
  field('User', h('input', { name: 'user', autocomplete: 'username', autocapitalize: 'off' })),
  field('Password', h('input', { name: 'password', type: 'password', autocomplete: 'current-password' })),
  h('details', null, h('summary', null, 'With the cluster’s token instead'),
    field('Token', h('input', { name: 'token', type: 'password', autocomplete: 'off' }))),
  h('div', { class: 'actions end' }, h('button', { class: 'solid' }, 'Sign in')));
  place('main').replaceChildren(form);
  form.elements.user.focus();
}

async function start() {
  try {
    await restore();
  } catch (failure) {
    showSignIn(failure.status === 401 ? null : failure.message);
    return;
  }
  showSession();
  stop ??= watch((topics) => current?.refresh(topics), showLive);
  show(false);
}

function help() {
  const keys = [...PAGES.map(([, title, key]) => [`g ${key}`, title]), ['/', 'The first field of the page'], ['r', 'Ask again'],
    ['?', 'These keys'], ['Esc', 'Close a dialog']];
  ask({
    title: 'Keys', cancel: 'Close', submit: async () => {},
    body: h('dl', { class: 'keys' }, keys.map(([key, text]) => h('div', null, h('dt', null, h('kbd', null, key)), h('dd', null, text)))),
  });
}

let after_g_ms = 0;
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !stop || document.querySelector('dialog[open]')) return;
  if (event.target.closest('input:not([type=checkbox], [type=radio]), select, textarea')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  const target = PAGES.find(([, , key]) => key === event.key);
  if (Date.now() - after_g_ms < 1500 && target) location.hash = `#/${target[0]}`;
  else if (event.key === '?') help();
  else if (event.key === 'r') refresh();
  else if (event.key === '/') place('main').querySelector('input, select, textarea')?.focus();
  else if (event.key !== 'g') return;
  after_g_ms = event.key === 'g' ? Date.now() : 0;
  event.preventDefault();
}

addEventListener('hashchange', () => stop && show(true));
addEventListener('keydown', keys);
document.addEventListener('signed-out', () => stop && showSignIn());
document.querySelector('.skip').onclick = (event) => {
  event.preventDefault(); // the fragment is the page's address
  place('main').focus();
};
start();
