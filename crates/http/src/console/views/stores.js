// The table of stores.

import { post, segment } from '../api.js';
import { action, ask, check, field, select } from '../dialog.js';
import { h } from '../dom.js';
import { bytes, count, microseconds, rate } from '../format.js';
import { bytesProgress, heading, state, storeLink } from '../parts.js';
import { table } from '../table.js';

export const title = 'Stores';

export async function load(page) {
  const [{ stores }, load] = await Promise.all([page.get('/v1/stores', ['stores']), page.get('/v1/load', ['load'], { stores: [] })]);
  if (stores.some(({ push }) => push?.state === 'fetching')) page.soon(['stores'], 1000);
  const loads = new Map(load.stores.map((entry) => [entry.store, entry]));
  return stores.map((store) => ({
    ...store, load: loads.get(store.name), current: store.versions.find(({ current }) => current),
    records: store.keys ?? store.versions.find(({ current }) => current)?.records ?? null,
  }));
}

export const draw = (page, stores) => [
  heading('Stores', h('span', { class: 'actions' },
    action('Create a store', { run: create }), action('Restore a dropped store', { run: restore }))),
  table(page, {
    id: 'stores', label: 'Stores', rows: stores, key: ({ name }) => name, empty: 'There are no stores.',
    columns: [
      { name: 'Store', cell: ({ name }) => storeLink(name), by: ({ name }) => name },
      { name: 'Kind', cell: ({ kind, value_type: type }) => (type === 'bytes' ? kind : `${kind}, ${type}`), by: ({ kind }) => kind },
      { name: 'Current', number: true, cell: (store) => store.current_version ?? '–', by: (store) => store.current_version },
      { name: 'Versions', number: true, cell: ({ versions }) => versions.length, by: ({ versions }) => versions.length },
      { name: 'Records', number: true, cell: ({ records }) => count(records), by: ({ records }) => records },
      { name: 'Bytes', number: true, cell: ({ current }) => bytes(current?.bytes), by: ({ current }) => current?.bytes },
      { name: 'Requests/s', number: true, cell: ({ load }) => rate(load?.requests_per_second), by: ({ load }) => load?.requests_per_second },
      { name: 'p99', number: true, cell: ({ load }) => microseconds(load?.p99_microseconds), by: ({ load }) => load?.p99_microseconds },
      { name: 'Push', cell: ({ name, push }) => (!push ? '–' : push.state === 'fetching' ? bytesProgress(push.bytes_done, push.bytes_total, `push to ${name}`) : state(push.state)), by: ({ push }) => push?.state },
    ],
  }),
];

function create() {
  return ask({
    title: 'Create a store', verb: 'Create',
    body: [
      field('Name', h('input', { name: 'name', required: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' })),
      field('Kind', select({ name: 'kind' }, [['batch', 'batch: immutable versions, pushed'], ['versioned', 'versioned: read and written']], 'batch')),
      field('Replicas', h('input', { name: 'replicas', type: 'number', min: 1, placeholder: 'as the cluster' })),
      check('On every node: for a small batch store that is read often', { name: 'everywhere' }),
      field('Versions kept for a rollback', h('input', { name: 'backups', type: 'number', min: 0, value: 1, required: true }), 'For batch stores.'),
    ],
    submit: async (form) => {
      const { name, kind, replicas, everywhere, backups } = form.elements;
      await post('/v1/stores', {
        name: name.value, kind: kind.value, ...(replicas.value && { replicas: Number(replicas.value) }), ...(everywhere.checked && { everywhere: true }),
        ...(kind.value === 'batch' && { backups: Number(backups.value) }),
      });
      location.hash = `#/stores/${segment(name.value)}`;
    },
  });
}

const restore = () => ask({
  title: 'Restore a dropped store', verb: 'Restore',
  body: field('Name', h('input', { name: 'name', required: true, autocomplete: 'off' }), 'Its data is kept for a day, unless configured.'),
  submit: async (form) => { await post(`/v1/stores/${segment(form.elements.name.value)}/restore`); },
});
