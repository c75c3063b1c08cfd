// One store: its versions, the push under way, its plots, and what can be done with it.

import { get, post, remove, segment } from '../api.js';
import { chart } from '../chart.js';
import { action, ask, confirm, field } from '../dialog.js';
import { h } from '../dom.js';
import { bytes, count, inUnit, microseconds, plural, rate, seconds, time } from '../format.js';
import { HISTORY_MS, beginning, byStore, latest, most, sum, update } from '../history.js';
import { badge, bytesProgress, facts, heading, nodeLink, section, state } from '../parts.js';
import { table } from '../table.js';
import { stepOf } from './load.js';

export const title = (page) => `Store ${page.parameters[0]}`;

const UNDER_WAY = ['fetching', 'ready'];

export async function load(page) {
  const [store, now] = await Promise.all([
    page.get(`/v1/stores/${segment(page.parameters[0])}`, ['stores', 'nodes']),
    page.get('/v1/load', ['load'], null).catch(() => null),
    page.keep('history', ['load'], update).catch(() => null),
  ]);
  if (UNDER_WAY.includes(store.push?.state)) page.soon(['stores'], 700);
  const schemas = ['avro', 'protobuf'].includes(store.value_type) ? await page.get(`/v1/stores/${segment(store.name)}/schemas`, ['stores']) : null;
  return { store, schemas, window_ms: now?.window_ms ?? 50000 };
}

export function draw(page, { store, schemas, window_ms }) {
  const path = `/v1/stores/${segment(store.name)}`;
  const batch = store.kind !== 'versioned';
  const pushing = UNDER_WAY.includes(store.push?.state);
  const older = store.versions.some(({ version }) => version < store.current_version);
  return [
    heading(`Store ${store.name}`, badge(store.kind), h('span', { class: 'actions' },
      batch && !pushing && action('Push', { key: 'push', run: () => push(store.name, path) }),
      batch && older && action('Roll back', { key: 'back', danger: true, run: () => confirm({
        title: `Roll back ${store.name}`, verb: 'Roll back', text: `The version before ${store.current_version} is served again, at once.`, submit: () => post(`${path}/rollback`) }) }),
      action('Drop', { key: 'drop', danger: true, run: () => drop(store.name, path) }))),
    facts([
      batch && ['current version', store.current_version ?? '–'], ['replicas', store.everywhere ? 'on every node' : store.replicas],
      ['values', store.value_type ?? 'bytes'], ['keys are', store.key_type ?? 'bytes'],
      batch && ['versions kept for a rollback', store.backups],
      store.keys !== null && ['keys', count(store.keys)], ['created', time(store.created_unix_ms)],
      ['late nodes', store.late.length ? store.late.map((node) => [nodeLink(node), ' ']) : 'none'],
      store.without_quorum && ['without quorum', quorum(store.without_quorum)],
      store.tolerate_failures !== null && ['tolerates failures', store.tolerate_failures],
      store.space_quota_bytes && ['space quota', store.over_space_quota ? badge(`${bytes(store.space_quota_bytes)}, exceeded: only deletions`, 'bad') : `${bytes(store.space_used_bytes ?? 0)} of ${bytes(store.space_quota_bytes)}`],
      store.read_keys_per_second !== null && ['read quota', `${rate(store.read_keys_per_second)} keys/s`],
    ]),
    store.push && progressOf(page, store, path),
    batch && section('Versions', versions(page, store, path)),
    schemas && section('Schemas', schemasOf(page, schemas, path)),
    store.versioned && section('Quorums and engine', facts(Object.entries(store.versioned).map(setting))),
    plots(store.name, window_ms),
  ];
}

/// A setting of a versioned store, for people.
function setting([name, value]) {
  const label = name.replace(/_ms$/, '').replace('_keys_per_second', ' quota').replaceAll('_', ' ');
  if (name === 'ttl_ms' && !value) return ['ttl', 'for ever'];
  if (name === 'write_keys_per_second') return [label, value ? `${rate(value)} keys/s` : 'none'];
  if (name.endsWith('_ms') && value !== null) return [label, inUnit(value, 'ms')];
  return [label, value === null ? '–' : typeof value === 'boolean' ? (value ? 'yes' : 'no') : value];
}

const quorum = ({ reads, writes }) => (reads + writes === 0 ? 'none' : badge(`${plural(reads, 'partition')} for reads, ${count(writes)} for writes`, 'bad'));

function plots(name, window_ms) {
  const to = latest();
  const step = stepOf(window_ms, HISTORY_MS);
  const plot = (label, lines, format, top) => chart({ title: label, lines, from: beginning(), to, format, top });
  return section('The last hour', h('div', { class: 'charts' },
    plot('Requests/s', byStore('requests_per_second', sum, step, name), rate, 1),
    plot('p99, of the slowest node', byStore('p99_microseconds', most, step, name), microseconds, 100)));
}

/// Numbers of a canary that people compare.
const CANARY = [
  ['Reads', 'reads'], ['Compared', 'compared'], ['Missing', 'missing'], ['Added', 'added'], ['Changed', 'changed'], ['Errors', 'errors'],
];

const meanOf = (sum, number) => number ? microseconds(sum / number) : '–';

/// The canary of a push: its counts, by node and summed, and what can be done with it.
function canaryOf(page, { canary, version }, name, path) {
  const steer = (action) => () => post(`${path}/canary`, { action });
  const runs = ['running', 'paused'].includes(canary.state);
  const rows = [...canary.nodes, { node: null, counts: canary.counts }];
  return [
    h('div', { class: 'heading' }, h('span', null, `Canary ${canary.terms.reads}`), badge(canary.state),
      canary.against !== null && h('span', null, `${seconds(canary.elapsed_ms / 1000)} of ${seconds(canary.terms.time_ms / 1000)}, against version ${canary.against}`),
      canary.state === 'running' && action('Pause', { key: 'pause', run: steer('pause') }),
      canary.state === 'paused' && action('Resume', { key: 'resume', run: steer('resume') }),
      runs && action('Promote', { key: 'promote', run: () => confirm({
        title: `Promote version ${version} of ${name}`, verb: 'Promote', text: 'It becomes current at once, whatever was counted.', submit: steer('promote') }) }),
      runs && action('Abort', { key: 'abort', danger: true, run: () => confirm({
        title: `Abort the canary of ${name}`, verb: 'Abort', text: `Version ${version} is deleted.`, submit: steer('abort') }) })),
    canary.reason && h('p', null, canary.reason),
    table(page, {
      id: 'canary', label: 'Counts of the canary', rows, key: ({ node }) => node ?? 'all',
      columns: [
        { name: 'Node', cell: ({ node }) => node === null ? 'all' : nodeLink(node) },
        ...CANARY.map(([label, field]) => ({ name: label, cell: ({ counts }) => count(counts[field]) })),
        { name: 'Latency', cell: ({ counts }) => meanOf(counts.latency_us, counts.timed) },
        { name: 'Of the current version', cell: ({ counts }) => meanOf(counts.current_latency_us, counts.current_timed) },
      ],
    }),
  ];
}

function progressOf(page, { push: last, name }, path) {
  const running = UNDER_WAY.includes(last.state);
  return section(running ? 'Push under way' : 'Last push',
    h('div', { class: 'heading' }, state(last.state), h('span', null, `version ${last.version}`), running && bytesProgress(last.bytes_done, last.bytes_total, `push to ${name}`),
      running && last.seconds_left !== null && h('span', null, `${seconds(last.seconds_left)} left`),
      last.state === 'held' && action('Swap it in all the same', { danger: true, run: () => confirm({
        title: `Swap ${name}`, verb: `Serve version ${last.version}`, text: `Version ${last.version} goes live though its gates hold it: ${last.error}`,
        submit: () => post(`${path}/swap`, { version: last.version }) }) }),
      (running || last.state === 'held') && action('Cancel the push', { danger: true, run: () => confirm({
        title: `Cancel the push to ${name}`, verb: 'Cancel the push', text: `Nodes delete what they fetched of version ${last.version}.`, submit: () => remove(`${path}/push`) }) })),
    last.error && h('p', { class: 'banner bad' }, last.error),
    facts([
      ['source', h('code', null, last.source)], ['records', last.records], ['bytes', bytes(last.bytes_total)], ['began', time(last.started_unix_ms)],
      last.ended_unix_ms !== null && ['took', seconds((last.ended_unix_ms - last.started_unix_ms) / 1000)],
      running && last.rate_bytes_per_second > 0 && ['rate', `${bytes(last.rate_bytes_per_second)}/s${last.rate_limit_bytes_per_second ? ` of ${bytes(last.rate_limit_bytes_per_second)}/s` : ''}`],
      last.gates && ['gates', last.gates],
      last.absent.length > 0 && ['absent', last.absent.map(({ node }) => [nodeLink(node), ' '])],
    ]),
    last.canary && canaryOf(page, last, name, path),
    last.nodes.length > 0 && table(page, {
      id: 'push', label: 'Progress of each node', rows: last.nodes, key: ({ node }) => node,
      columns: [
        { name: 'Node', cell: ({ node }) => nodeLink(node) }, { name: 'State', cell: (node) => state(node.state) },
        { name: 'Fetched', cell: (node) => bytesProgress(node.bytes_done, node.bytes_total, `node ${node.node}`) },
        { name: 'Error', cell: ({ error }) => error ?? '–' },
      ],
    }));
}

/// The schemas of the values, and the fields of each.
const schemasOf = (page, { compatibility, schemas }, path) => [
  h('p', null, 'A new schema is compared with the former ones: ', badge(compatibility), ' ',
    action('Count records', { needs: 'viewer', key: 'records', run: () => showRecords(path) })),
  table(page, {
    id: 'schemas', label: 'Schemas', rows: schemas, key: ({ id }) => id, empty: 'No schema is registered yet: fondaco schema register.',
    columns: [
      { name: 'Schema', cell: ({ id }) => id, by: ({ id }) => id },
      { name: 'Registered', cell: (schema) => time(schema.registered_unix_ms), by: (schema) => schema.registered_unix_ms },
      { name: 'Fields', cell: ({ fields, message }) => [message && [h('code', null, message), ': '],
        fields.map(({ name, type, default: value }) => `${name}: ${type}${value === undefined ? '' : ` = ${value}`}`).join(', ')] },
    ],
  }),
];

/// Asks for the number of records of each schema, and shows it.
async function showRecords(path) {
  const { counts, missing } = await get(`${path}/schemas/records`);
  const row = ({ schema, version, events, records }) => h('tr', null,
    h('td', null, schema ?? 'none'), h('td', null, version ?? '–', events && ' and its events'), h('td', { class: 'number' }, count(records)));
  ask({ title: 'Records by schema', cancel: 'Close', body: [
    h('table', { 'aria-label': 'Records by schema' },
      h('thead', null, h('tr', null, ['Schema', 'Version', 'Records'].map((name) => h('th', { scope: 'col' }, name)))), h('tbody', null, counts.map(row))),
    missing.map(({ node, reason }) => h('p', { class: 'banner bad' }, `Not counted: the records of node ${node}: ${reason}`)),
  ] });
  return false;
}

const versions = (page, { name, versions: rows }, path) => table(page, {
  id: 'versions', label: 'Versions', rows, key: ({ version }) => version, empty: 'Nothing was pushed yet.',
  columns: [
    { name: 'Version', cell: ({ version }) => version, by: ({ version }) => version },
    { name: 'State', cell: (version) => [state(version.state), ' ', version.current && badge('current', 'good')] },
    { name: 'Records', number: true, cell: ({ records }) => count(records), by: ({ records }) => records },
    { name: 'Bytes', number: true, cell: (version) => bytes(version.bytes), by: (version) => version.bytes },
    { name: 'Indexes', number: true, cell: (version) => bytes(version.index_bytes) },
    { name: 'Chunks', number: true, cell: ({ chunks }) => count(chunks) },
    { name: 'Built', cell: (version) => time(version.built_unix_ms), by: (version) => version.built_unix_ms },
    { name: 'Nodes', cell: (version) => nodesOf(version) },
    { name: 'Actions', cell: ({ version, current, state: word }) => !current && ['ready', 'serving'].includes(word) && action('Swap', {
      name: `Swap to version ${version}`, run: () => confirm({
        title: `Swap ${name}`, verb: `Serve version ${version}`, text: `Version ${version} becomes the current one on all nodes, at once.`,
        submit: () => post(`${path}/swap`, { version }) }) }) },
  ],
});

function nodesOf({ nodes, error }) {
  const words = new Map();
  for (const { node, state: word } of nodes) words.set(word, [...(words.get(word) ?? []), node]);
  const failed = nodes.filter((node) => node.error).map((node) => h('small', { class: 'bad' }, `node ${node.node}: ${node.error}`));
  return [[...words].map(([word, list]) => h('span', { class: 'badges' }, state(word), ` ${list.length > 6 ? count(list.length) : list.join(', ')} `)), error && h('small', { class: 'bad' }, error), failed];
}

function push(name, path) {
  const source = (form) => form.elements.source.value;
  return ask({
    title: `Push to ${name}`, verb: 'Push',
    body: field('Source', h('input', { name: 'source', required: true, autocomplete: 'off', spellcheck: 'false', placeholder: 'file:///data/version' }), 'The directory of a built version that all nodes can read: file, hdfs or s3.'),
    submit: async (form) => { await post(`${path}/pushes`, { source: source(form) }); },
    extra: [{ label: 'Dry run', run: async (form) => {
      const plan = await post(`${path}/pushes`, { source: source(form), dry_run: true });
      return h('p', { class: 'banner' }, `It would be version ${plan.version}: ${plural(plan.records, 'record')}, ${bytes(plan.bytes_total)}; ${bytes(plan.needed_bytes)} on the disk of a node${plan.links ? ', with links instead of copies' : ''}.`);
    } }],
  });
}

function drop(name, path) {
  return confirm({
    title: `Drop ${name}`, verb: 'Drop the store', phrase: name,
    text: 'All its versions are dropped. Nodes keep the data for a day, unless configured: until then the store can be restored.',
    submit: async () => {
      await remove(path);
      location.hash = '#/stores';
    },
  });
}
