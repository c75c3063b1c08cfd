// The audit log: what was changed, by which user, when, with which result.

import { field } from '../dialog.js';
import { h } from '../dom.js';
import { time } from '../format.js';
import { badge, heading } from '../parts.js';
import { table } from '../table.js';

export const title = 'Events';

export const load = (page) => page.get('/v1/audit?count=200', ['audit', 'settings'], { entries: null });

export function draw(page, { entries }) {
  if (entries === null) return [heading('Events'), h('p', { class: 'quiet' }, 'This server keeps no log of changes.')];
  const wanted = (page.state.wanted ?? '').toLowerCase();
  const text = ({ user, method, path, note, status }) => `${user ?? ''} ${method} ${path} ${note ?? ''} ${status}`.toLowerCase();
  return [
    heading('Events'),
    field('Filter', h('input', { type: 'search', class: 'short', oninput: (event) => {
      page.state.wanted = event.target.value;
      page.draw();
    } })),
    table(page, {
      id: 'audit', label: 'Changes, the latest first', rows: entries.filter((entry) => text(entry).includes(wanted)),
      key: ({ at_unix_ms: at, method, path, status }) => `${at} ${method} ${path} ${status}`, empty: 'No changes.',
      columns: [
        { name: 'When', cell: (entry) => time(entry.at_unix_ms) },
        { name: 'User', cell: ({ user }) => user ?? '–' },
        { name: 'Role', cell: ({ role }) => role ?? '–' },
        { name: 'Request', cell: ({ method, path }) => h('code', null, `${method} ${path}`) },
        { name: 'Status', cell: ({ status }) => badge(String(status), status < 400 ? 'good' : 'bad') },
        { name: 'Note', cell: ({ note }) => note || '–' },
      ],
    }),
  ];
}
