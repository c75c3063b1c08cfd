// Tables: a header, rows that can be sorted, and on a narrow screen a card for each row.

import { h } from './dom.js';
import { count } from './format.js';

const ROWS_MAX = 500;

/// Columns are { name, cell(row), by(row)?, number? }: a column with `by` can be sorted. The order is kept in the
/// page's state under the table's id.
export function table(page, { id, label, columns, rows, key, empty = 'None.' }) {
  if (rows.length === 0) return h('p', { class: 'quiet' }, empty);
  const order = page.state[id] ?? { column: null, down: false };
  const sorted = columns.find(({ name }) => name === order.column);
  if (sorted) {
    const sign = order.down ? -1 : 1;
    rows = [...rows].sort((a, b) => sign * compare(sorted.by(a), sorted.by(b)));
  }
  const sort = (name) => {
    page.state[id] = { column: name, down: order.column === name && !order.down };
    page.draw();
  };
  const header = (column) => h('th', {
    role: 'columnheader', scope: 'col', class: column.number ? 'number' : null,
    'aria-sort': order.column !== column.name ? null : order.down ? 'descending' : 'ascending',
  }, column.by ? h('button', { class: 'plain sort', onclick: () => sort(column.name) }, column.name) : column.name);
  const shown = rows.slice(0, ROWS_MAX);
  return h('div', { class: 'table' },
    h('table', { role: 'table', 'aria-label': label },
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, columns.map(header))),
      h('tbody', { role: 'rowgroup' }, shown.map((row, index) =>
        h('tr', { role: 'row', 'data-key': `row ${key ? key(row) : index}` }, columns.map((column) =>
          h('td', { role: 'cell', class: column.number ? 'number' : null, 'data-label': column.name }, column.cell(row))))))),
    rows.length > ROWS_MAX && h('p', { class: 'quiet' }, `${count(ROWS_MAX)} of ${count(rows.length)} rows are shown.`));
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === 'string' ? a.localeCompare(b, 'en', { numeric: true }) : a - b;
}
