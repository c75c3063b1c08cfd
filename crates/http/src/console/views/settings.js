// The live settings: how the cluster balances its load, as a form, and all others by name.

import { change, may } from '../api.js';
import { check, field, notice, select } from '../dialog.js';
import { h } from '../dom.js';
import { inUnit, minutesOfDay, quantity, timeOfDay, unitOf } from '../format.js';
import { heading, section } from '../parts.js';
import { refresh } from '../page.js';

export const title = 'Settings';

const MODES = ['Off: the cluster moves nothing by itself', 'Propose: it makes plans, and an operator runs them', 'Act: it makes plans and runs them'];
const POLICIES = [[0, 'one partition of one node'], [1, 'one partition of each node'], [2, 'as many as it takes']];
const FRIENDLY = ['balance-mode', 'balance-policy', 'balance-window-ms', 'balance-from-minute', 'balance-to-minute'];
const GROUPS = [
  ['Balance: limits', /^balance-/], ['Fetching and moving', /^(fetch|move)-/], ['Clients', /^(client|bulk|argument|slow)/],
  ['Routing', /^(forward|router)-/], ['Graphs and computation', /^(graph|compute)-/], ['Traces', /^traces-/], ['Others', /./],
];

export const load = (page) => page.get('/v1/settings', ['settings']);

export function draw(page, { settings }) {
  const values = Object.fromEntries(settings.map((setting) => [setting.name, setting]));
  const left = new Set(settings.filter(({ name }) => !(values['balance-mode'] && FRIENDLY.includes(name))));
  return [
    heading('Settings', !may('admin') && h('span', { class: 'quiet' }, 'An admin may change them.')),
    values['balance-mode'] && balance(values),
    GROUPS.map(([name, pattern]) => {
      const members = [...left].filter((setting) => pattern.test(setting.name));
      members.forEach((setting) => left.delete(setting));
      return members.length > 0 && section(name, form(members.map(row), (fields) => changes(fields, values), values));
    }),
  ];
}

/// A form of settings: what `read` returns is changed at once, or nothing. `values` follow, so that the next change is told from
/// this one, even if the page has not heard of this one yet.
function form(body, read, values) {
  return h('form', {
    class: 'settings',
    onsubmit: async (event) => {
      event.preventDefault();
      const { currentTarget } = event;
      const sent = [...currentTarget.elements].map(content);
      try {
        const wanted = read(currentTarget.elements);
        const number = Object.keys(wanted).length;
        if (number > 0) await save(wanted, values);
        notice(number > 0 ? `changed: ${Object.keys(wanted).join(', ')}` : 'nothing to change');
        settle(currentTarget, sent);
        refresh();
      } catch (failure) {
        notice(failure.message, true);
      }
    },
  }, h('fieldset', { disabled: !may('admin') }, body, may('admin') && h('div', { class: 'actions end' }, h('button', { class: 'solid' }, 'Change'))));
}

async function save(wanted, values) {
  const former = Object.keys(wanted).map((name) => [name, values[name].value]);
  for (const [name, value] of Object.entries(wanted)) values[name].value = value;
  try {
    await change('/v1/settings', wanted);
  } catch (failure) {
    for (const [name, value] of former) values[name].value = value;
    throw failure;
  }
}

const isChecked = (element) => element.matches('[type=checkbox], [type=radio]');
const content = (element) => (isChecked(element) ? element.checked : element.value);

/// Makes what was sent the usual content of the fields, so that they follow the server again. What was written since stays.
function settle(form, sent) {
  const elements = [...form.elements];
  const now = elements.map(content);
  elements.forEach((element, index) => {
    if (isChecked(element)) element.defaultChecked = sent[index];
    else if (element.matches('select')) for (const option of element.options) option.defaultSelected = option.value === sent[index];
    else element.defaultValue = sent[index];
  });
  form.reset();
  elements.forEach((element, index) => {
    if (now[index] !== sent[index]) element[isChecked(element) ? 'checked' : 'value'] = now[index];
  });
}

function row({ name, value, min, max, summary, templates, default: usual }) {
  const unit = unitOf(name);
  const elsewhere = Object.entries(templates ?? {}).map(([template, own]) => `${inUnit(own, unit)} for the template ${template}`);
  const hint = [summary, unit && unit !== 'percent' && value !== 0 ? `now ${inUnit(value, unit)}` : null, value !== usual && usual !== '' ? `default ${inUnit(usual, unit)}` : null, ...elsewhere];
  return h('div', { class: 'setting', 'data-key': `setting ${name}` }, h('label', { for: name }, h('code', null, name)),
    h('input', { name, value, id: name, 'aria-describedby': `hint-${name}`, inputmode: typeof value === 'string' ? 'url' : 'decimal', autocomplete: 'off', title: min === undefined ? '' : `${min} to ${max}` }),
    h('small', { id: `hint-${name}` }, hint.filter(Boolean).join(' · ')));
}

function changes(fields, values) {
  const wanted = {};
  for (const { name, value } of fields) {
    if (!(name in values)) continue;
    const { value: now, max } = values[name];
    const isPlain = typeof now === 'string' || max === 1;
    const number = typeof now === 'string' ? value.trim() : isPlain ? (value.trim() === '' ? null : Number(value)) : quantity(value, unitOf(name));
    if (number === null || Number.isNaN(number)) throw new Error(`not a number: "${value}" for ${name}`);
    if (number !== now) wanted[name] = number;
  }
  return wanted;
}

function balance(values) {
  const value = (name) => values[`balance-${name}`].value;
  const any = value('from-minute') === value('to-minute');
  return section('Balance', form([
    h('fieldset', null, h('legend', null, 'What the cluster does about load by itself'),
      MODES.map((label, index) => check(label, { type: 'radio', name: 'mode', value: index, checked: index === value('mode') }))),
    h('div', { class: 'row' },
      field('Moves at a time', select({ name: 'policy' }, POLICIES, value('policy'))),
      field('Window', h('input', { name: 'window', value: value('window-ms') % 1000 ? `${value('window-ms')}ms` : `${value('window-ms') / 1000}s`, required: true }), 'Load is averaged over it: such as 50s or 5min.')),
    check('Run plans at any time', { name: 'any', checked: any }),
    h('div', { class: 'row times-of-day' },
      field('Run plans from', h('input', { type: 'time', name: 'from', value: timeOfDay(value('from-minute')) }), 'UTC'),
      field('until', h('input', { type: 'time', name: 'to', value: timeOfDay(value('to-minute')) }), 'UTC')),
  ], (fields) => {
    const window_ms = quantity(fields.window.value, 'ms');
    if (window_ms === null) throw new Error(`not a time: "${fields.window.value}"`);
    const from = fields.any.checked ? 0 : minutesOfDay(fields.from.value);
    const to = fields.any.checked ? 0 : minutesOfDay(fields.to.value);
    if (!fields.any.checked && (Number.isNaN(from) || Number.isNaN(to) || from === to)) throw new Error('give two different times, or run plans at any time');
    const wanted = { 'balance-mode': Number(fields.mode.value), 'balance-policy': Number(fields.policy.value), 'balance-window-ms': window_ms, 'balance-from-minute': from, 'balance-to-minute': to };
    if (any && fields.any.checked) for (const name of ['balance-from-minute', 'balance-to-minute']) delete wanted[name];
    return Object.fromEntries(Object.entries(wanted).filter(([name, number]) => number !== values[name].value));
  }, values));
}
