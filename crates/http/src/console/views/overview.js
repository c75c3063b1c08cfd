// The cluster at a glance: problems, what is under way, a tile for each node, a cell for each partition.

import { h, patchChildren } from '../dom.js';
import { bytes, count, percent, plural, rate, time } from '../format.js';
import { badge, bytesProgress, choice, facts, heading, marks, nodeLink, planLink, progress, section, storeLink } from '../parts.js';
import { reasons } from '../plan_parts.js';

export const title = 'Overview';

const MANY = 1024; // partitions, from where on their cells are smaller
const FEW = 256; // and up to where they are larger

export async function load(page) {
  const [cluster, routing, load, plans, stores, decisions] = await Promise.all([
    page.get('/v1/cluster', ['nodes', 'routers', 'routing']),
    page.get('/v1/routing', ['routing']).catch((failure) => {
      if (failure.status === 409) return null; // no routing table yet
      throw failure;
    }),
    page.get('/v1/load', ['load'], null),
    page.get('/v1/plans', ['plans', 'routing'], { plans: [] }),
    page.get('/v1/stores', ['stores']),
    page.get('/v1/decisions?count=1', ['decisions', 'load'], { decisions: [] }).catch(() => ({ decisions: [] })),
  ]);
  const pushes = stores.stores.filter(({ push }) => push && ['fetching', 'ready'].includes(push.state));
  const running = plans.plans.filter(({ state }) => ['running', 'paused'].includes(state));
  if (pushes.length > 0) page.soon(['stores'], 1000);
  else if (running.some(({ state }) => state === 'running')) page.soon(['plans', 'routing', 'nodes'], 2000);
  const proposed = plans.plans.filter(({ state }) => state === 'proposed');
  return { cluster, routing, load, pushes, running, proposed, stores: stores.stores, advice: decisions.decisions[0]?.advice ?? [] };
}

export function draw(page, data) {
  const { cluster, routing, load } = data;
  if (!cluster.nodes.some(({ node }) => node === page.state.marked)) page.state.marked = null; // it was removed
  const live = cluster.nodes.filter((node) => node.live).length;
  const requests = load?.nodes.reduce((total, node) => total + node.load.requests_per_second, 0);
  return [
    heading('Overview'),
    problems(data),
    facts([
      ['nodes', live === cluster.nodes.length ? live : `${live} of ${cluster.nodes.length} live`],
      ['partitions', cluster.partitions], ['replicas', cluster.replicas], ['placement', cluster.placement],
      ['stores', data.stores.length], load && ['requests/s', rate(requests)],
      ['routing epoch', cluster.routing_epoch ?? '–'], ['leader', cluster.leader ?? badge('none', 'bad')],
      ['routers', cluster.routers.length],
    ]),
    underWay(data),
    section('Nodes', cluster.nodes.length ? zones(page, cluster.nodes, load) : h('p', { class: 'quiet' }, 'There are no nodes yet.')),
    routing && partitions(page, routing, load),
  ];
}

function problems({ cluster, advice, proposed }) {
  const lines = [
    ...cluster.problems.map((text) => ['bad', text]),
    ...cluster.nodes.filter((node) => !node.live).map(({ node, absent_since_unix_ms: since }) => ['bad', [nodeLink(node), since === null ? ' is absent' : ` is absent since ${time(since)}`]]),
    ...cluster.nodes.filter((node) => node.live && node.late.length > 0).map(({ node, late }) => ['warn', [nodeLink(node), ` is late with ${late.join(', ')}`]]),
    ...advice.map(({ problem, help }) => ['warn', `${problem}: ${help}`]),
    ...proposed.slice(0, 5).map((plan) => ['warn', [planLink(plan.number), ` is proposed: ${plural(plan.partitions, 'partition')}`, plan.reason && `, ${reasons(plan)[0]}`]]),
  ];
  return h('ul', { class: 'problems', 'data-key': 'problems', 'aria-label': 'Problems' }, lines.map(([kind, text]) => h('li', { class: `banner ${kind}` }, text)));
}

function underWay({ pushes, running }) {
  if (pushes.length + running.length === 0) return null;
  return section('Under way', h('ul', { class: 'plain' },
    running.map((plan) => h('li', null, planLink(plan.number), plan.state === 'paused' ? ' (paused) ' : ' ', progress(plan.partitions_done, plan.partitions, `plan ${plan.number}`))),
    pushes.map(({ name, push }) => h('li', null, 'push to ', storeLink(name), ' ', bytesProgress(push.bytes_done, push.bytes_total, `push to ${name}`)))));
}

function zones(page, nodes, load) {
  const loads = new Map((load?.nodes ?? []).map((entry) => [entry.node, entry.load]));
  return h('div', { class: 'zones' }, grouped(nodes, ({ zone }) => zone).sort(([a], [b]) => a.localeCompare(b)).map(([zone, members]) =>
    h('div', { class: 'zone', 'data-key': `zone ${zone}` }, h('h3', null, /^zone/i.test(zone) ? zone : `zone ${zone}`),
      grouped(members, ({ group }) => group).sort(([a], [b]) => (a ?? '').localeCompare(b ?? '')).map(([group, inside]) => h('div', { class: 'group', 'data-key': `group ${group}` },
        group !== null && h('h4', null, `group ${group}`),
        h('div', { class: 'tiles' }, inside.map((node) => tile(page, node, node.live ? loads.get(node.node) : null))))))));
}

const grouped = (list, by) => [...list.reduce((map, item) => map.set(by(item), [...(map.get(by(item)) ?? []), item]), new Map())];

function tile(page, node, load) {
  const point = () => mark(page, node.node);
  const unmark = () => mark(page, null);
  const next = node.partitions_next !== null && node.partitions_next !== node.partitions ? ` → ${count(node.partitions_next)}` : '';
  return h('a', {
    class: node.live ? 'tile' : 'tile absent', href: `#/nodes/${node.node}`, 'data-key': `node ${node.node}`,
    style: { '--load': Math.min(1, (load?.cpu_percent ?? 0) / 100) },
    onpointerenter: point, onpointerleave: unmark, onfocus: point, onblur: unmark,
  },
  h('span', { class: 'tile-head' }, h('b', null, `node ${node.node}`), h('span', null, load ? percent(load.cpu_percent) : '')),
  h('span', null, `${plural(node.partitions, 'partition')}${next}`),
  load && h('small', null, `${rate(load.requests_per_second)} requests/s`),
  h('span', { class: 'badges' }, marks(node)));
}

/// Leaves only the partitions of a node bright, or all of them (null), until the pointer moves on.
function mark(page, node) {
  page.state.marked = node;
  for (const cell of document.querySelectorAll('.cells > button')) cell.classList.toggle('dim', isDim(page, cell.dataset.owners.split(' ').map(Number)));
}

const isDim = ({ state }, owners) => state.marked !== null && !owners.includes(state.marked);

function partitions(page, routing, load) {
  const colour = page.state.colour ?? 'load';
  const loads = new Map((load?.partitions ?? []).map((entry) => [entry.partition, entry]));
  const value = (entry) => (colour === 'bytes' ? entry?.bytes : entry?.requests_per_second) ?? 0;
  const highest = Math.max(1e-9, ...[...loads.values()].map(value));
  const shown = page.state.partition ?? null;
  const point = (event) => {
    const cell = event.target.closest('[data-partition]');
    if (!cell || page.state.partition === Number(cell.dataset.partition)) return;
    page.state.partition = Number(cell.dataset.partition);
    // Only what changes: to draw thousands of cells for each movement of the pointer would be slow.
    const grid = cell.parentElement;
    grid.querySelectorAll('[tabindex="0"], .shown').forEach((other) => {
      other.tabIndex = -1;
      other.classList.remove('shown');
    });
    cell.tabIndex = 0;
    cell.classList.add('shown');
    patchChildren(grid.nextSibling, h('p', null, describe(routing, loads.get(page.state.partition), page.state.partition)));
  };
  const keys = (event) => {
    const cell = event.target.closest('[data-partition]');
    const across = getComputedStyle(event.currentTarget).gridTemplateColumns.split(' ').length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    const next = step && cell && event.currentTarget.children[Number(cell.dataset.partition) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  const scale = [h('span', null, '0'), h('i', { class: 'colours' }), h('span', null, colour === 'bytes' ? bytes(highest) : `${rate(highest)} requests/s`)];
  return section('Partitions',
    h('div', { class: 'heading' }, choice('Colour by', [['load', 'requests'], ['bytes', 'bytes'], ['owner', 'first owner']], colour, (next) => {
      page.state.colour = next;
      page.draw();
    }), h('small', { class: 'scale' }, colour !== 'owner' && loads.size > 0 && scale,
      routing.owners.some((_, partition) => moves(routing, partition)) && [h('i', { class: 'moving' }), h('span', null, 'moves')])),
    h('div', { class: routing.partitions > MANY ? 'cells many' : routing.partitions <= FEW ? 'cells few' : 'cells', role: 'group', 'aria-label': 'Partitions: arrow keys move', onpointerover: point, onkeydown: keys },
      routing.owners.map((owners, partition) => {
        const entry = loads.get(partition);
        return h('button', {
          class: `${colour === 'owner' ? 'owned' : ''} ${moves(routing, partition) ? 'moves' : ''} ${partition === shown ? 'shown' : ''} ${isDim(page, owners) ? 'dim' : ''}`,
          onfocus: point, 'data-partition': partition, 'data-owners': owners.join(' '), tabindex: partition === (shown ?? 0) ? 0 : -1,
          style: colour === 'owner' ? { '--hue': Math.round((owners[0] ?? 0) * 137.5) % 360 } : { '--load': (value(entry) / highest).toFixed(2) },
          'aria-label': `partition ${partition}, nodes ${owners.join(', ')}, ${bytes(entry?.bytes)}${moves(routing, partition) ? ', moves' : ''}`,
        });
      })),
    h('p', { class: 'detail' }, shown === null || shown >= routing.owners.length ? 'Point at a partition to see its owners.' : describe(routing, loads.get(shown), shown)));
}

const same = (a, b) => a.join() === b.join();
const moves = (routing, partition) => partition in routing.joint
  || Boolean(routing.next && !same(routing.next[partition], routing.owners[partition]));

function describe(routing, entry, partition) {
  const list = (nodes) => nodes.map((node, index) => [index > 0 && ', ', nodeLink(node)]);
  return [h('b', null, `partition ${partition}`), ': ', list(routing.owners[partition]),
    moves(routing, partition) && [' → ', list(routing.next?.[partition] ?? routing.joint[partition] ?? [])],
    entry && ` · ${bytes(entry.bytes)} · ${rate(entry.requests_per_second)} requests/s · ${rate(entry.writes_per_second)} writes/s · ${bytes(entry.bytes_per_second)}/s`];
}
