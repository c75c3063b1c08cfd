// What the leading controller decided about the load, and why.

import { check } from '../dialog.js';
import { h } from '../dom.js';
import { bytes, percent, plural, time } from '../format.js';
import { badge, heading, nodeLink, planLink } from '../parts.js';

export const title = 'Decisions';

export async function load(page) {
  const [one] = page.parameters;
  if (one) return { decisions: [await page.get(`/v1/decisions/${encodeURIComponent(one)}`, [])], one };
  const [list, { advice }] = await Promise.all([page.get('/v1/decisions?count=200', ['decisions', 'plans', 'load']), page.get('/v1/load', ['decisions', 'plans', 'load'], { advice: [] })]);
  return { ...list, advice };
}

export function draw(page, { decisions, one, advice = [] }) {
  const shown = page.state.moves ? decisions.filter(({ moves }) => moves) : decisions;
  return [
    heading(one ? `Decision ${one}` : 'Decisions', one ? h('a', { href: '#/decisions' }, 'all decisions') : check('only moves', {
      checked: page.state.moves, onchange: (event) => {
        page.state.moves = event.target.checked;
        page.draw();
      },
    })),
    advice.map(({ problem, help }) => h('p', { class: 'banner warn' }, h('b', null, problem), `: ${help}`)),
    shown.length === 0 && h('p', { class: 'quiet' }, page.state.moves ? 'No decision moved anything.' : 'The leading controller has decided nothing yet.'),
    h('ol', { class: 'decisions' }, runs(shown).map((run) => h('li', { class: 'panel', 'data-key': `decision ${run.at(-1).number}` }, article(run, one)))),
  ];
}

/// Decisions, the latest first, in runs of those that moved nothing for the same reasons.
function runs(decisions) {
  const found = [];
  // Reasons differ in figures, such as the seconds that are left.
  const kind = ({ number, moves, plan, reasons, advice }) => (moves || plan !== null || advice.length > 0 ? number : reasons.join().replace(/\d+/g, ''));
  for (const decision of decisions) {
    const last = found.at(-1);
    if (last && kind(last[0]) === kind(decision)) last.push(decision);
    else found.push([decision]);
  }
  return found;
}

const article = ([decision, ...before], one) => [
  h('div', { class: 'heading' },
    !one && h('h2', null, h('a', { href: `#/decisions/${decision.number}` }, `Decision ${decision.number}`)),
    h('time', null, time(decision.at_unix_ms)), badge(decision.mode),
    decision.moves ? badge('moves', 'busy') : badge('nothing moves'),
    decision.plan !== null && planLink(decision.plan),
    before.length > 0 && h('small', { class: 'quiet' }, `and ${plural(before.length, 'decision')} before it, since ${time(before.at(-1).at_unix_ms)}`)),
  h('ul', { class: 'reasons' }, decision.reasons.map((reason) => h('li', null, reason))),
  decision.advice.map(({ problem, help }) => h('p', { class: 'banner warn' }, h('b', null, problem), `: ${help}`)),
  one && decision.relief.length > 0 && h('ul', { class: 'reasons' }, decision.relief.map((move) => h('li', null,
    `partition ${move.partition}: `, nodeLink(move.from), ` ${percent(move.from_percent_before)} → ${percent(move.from_percent_after)}, `,
    nodeLink(move.to), ` ${percent(move.to_percent_before)} → ${percent(move.to_percent_after)} of ${move.resource}, ${bytes(move.bytes)} to fetch`))),
  one && decision.input !== null && h('details', null, h('summary', null, 'What it was made of'), h('pre', null, JSON.stringify(decision.input, null, 1))),
];
