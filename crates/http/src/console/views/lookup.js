// One key: its value, its slot and partition, and the nodes that would answer.

import { get, post, raw, segment } from '../api.js';
import { check, field } from '../dialog.js';
import { h } from '../dom.js';
import { bytes } from '../format.js';
import { badge, facts, heading, nodeLink, section } from '../parts.js';

export const title = 'Look-up';

const SHOWN_MAX = 20000; // characters of a value

export async function load(page) {
  const key = page.parameters.join('/');
  page.state.key ??= key;
  if (key === '') return {};
  const escaped = page.state.escaped ?? false;
  const [where, value] = await Promise.all([
    get(`/v1/where?key=${escaped ? key : segment(key)}`).catch((failure) => ({ failure })),
    find(key, escaped).catch((failure) => ({ failure })),
  ]);
  return { key, where, value };
}

async function find(key, escaped) {
  if (!escaped) {
    try {
      return (await post('/v1/lookup', { keys: [key], decode: true })).values[0];
    } catch (failure) {
      if (failure.code !== 'not_decodable') throw failure;
      return (await post('/v1/lookup', { keys: [key] })).values[0];
    }
  }
  const colon = key.indexOf(':');
  try {
    return decode(await raw(`/v1/stores/${segment(key.slice(0, colon))}/keys/${key.slice(colon + 1)}`));
  } catch (failure) {
    if (failure.code === 'key_not_found') return null;
    throw failure;
  }
}

function decode(value) {
  try {
    return { utf8: new TextDecoder('utf-8', { fatal: true }).decode(value) };
  } catch {
    return { base64: btoa(Array.from(value.subarray(0, SHOWN_MAX), (byte) => String.fromCharCode(byte)).join('')), bytes: value.length };
  }
}

export function draw(page, data) {
  const submit = (event) => {
    event.preventDefault();
    const { key, escaped } = event.currentTarget.elements;
    page.state.key = key.value;
    page.state.escaped = escaped.checked;
    history.replaceState(null, '', `#/lookup/${segment(key.value)}`);
    page.parameters = [key.value];
    page.refresh(null);
  };
  return [
    heading('Look-up'),
    h('form', { class: 'panel', onsubmit: submit },
      field('Key', h('input', { name: 'key', required: true, value: page.state.key, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', placeholder: 'store:key', pattern: '[^:]+:[^]*' }), 'The store, a colon, the key.'),
      check('The key is percent-encoded, such as %00%FF', { name: 'escaped', checked: page.state.escaped }),
      h('div', { class: 'actions end' }, h('button', { class: 'solid' }, 'Look up'))),
    data.key !== undefined && [valueOf(data.value), places(data.where)],
  ];
}

function valueOf(value) {
  if (value?.failure) return section('Value', h('p', { class: 'banner bad' }, value.failure.message));
  if (value === null) return section('Value', h('p', { class: 'quiet' }, 'The store has no such key.'));
  if (value.decoded) {
    const { schema, json } = value.decoded;
    return section('Value', schema !== null && h('p', null, badge(`schema ${schema}`)),
      h('pre', { class: 'value', tabindex: 0 }, JSON.stringify(json, null, 2).slice(0, SHOWN_MAX)));
  }
  const text = value.utf8 ?? value.base64;
  const size = value.bytes ?? (value.utf8 !== undefined ? new TextEncoder().encode(text).length : Math.floor(text.length * 3 / 4));
  return section('Value', h('p', null, badge(value.utf8 !== undefined ? 'text' : 'base64'), ` ${bytes(size)}`, text.length > SHOWN_MAX && ', the beginning of it:'),
    h('pre', { class: 'value', tabindex: 0 }, text.slice(0, SHOWN_MAX)));
}

function places(where) {
  if (where.failure) return where.failure.status === 404 && where.failure.code === 'route_not_found' ? null : section('Nodes', h('p', { class: 'banner bad' }, where.failure.message));
  return section('Nodes', facts([['slot', where.slot], ['partition', where.partition]]),
    h('p', null, 'These nodes have the key, the first one is asked first:'),
    h('ol', { class: 'owners' }, where.owners.map((owner) => h('li', null, nodeLink(owner.node), ' ', h('code', null, owner.resp), ' ',
      owner.live ? badge('live', 'good') : badge('absent', 'bad'), ' ', owner.resting && badge('resting', 'warn')))),
    where.next?.length > 0 && h('p', null, 'After the move under way: ', where.next.map((next, index) => [index > 0 && ', ', nodeLink(next.node ?? next)])));
}
