// Users: their role here, and the stores that they may read and write.

import { put, remove, segment } from '../api.js';
import { action, ask, check, confirm, field, select } from '../dialog.js';
import { h } from '../dom.js';
import { badge, heading } from '../parts.js';
import { table } from '../table.js';

export const title = 'Users';

export const load = (page) => page.get('/v1/users', ['users'], { users: null });

export function draw(page, { users }) {
  if (users === null) return [heading('Users'), h('p', { class: 'quiet' }, 'This server keeps no users.')];
  return [
    heading('Users', action('Add a user', { needs: 'admin', run: () => edit(null) })),
    table(page, {
      id: 'users', label: 'Users', rows: users, key: ({ name }) => name, empty: 'There are no users.',
      columns: [
        { name: 'User', cell: ({ name }) => name, by: ({ name }) => name },
        { name: 'Role', cell: ({ role }) => (role ? badge(role) : 'no access to the console'), by: ({ role }) => role },
        { name: 'Reads', cell: ({ stores }) => patterns(stores) },
        { name: 'Writes', cell: ({ writes }) => patterns(writes) },
        { name: 'RESP administration', cell: ({ admin }) => (admin ? 'yes' : 'no') },
        { name: 'Actions', cell: (user) => h('span', { class: 'actions' },
          action('Change', { needs: 'admin', name: `Change ${user.name}`, run: () => edit(user) }),
          action('Delete', { needs: 'admin', danger: true, name: `Delete ${user.name}`, run: () => confirm({
            title: `Delete user ${user.name}`, verb: 'Delete', text: 'The user can no longer sign in, here and over RESP.', submit: () => remove(`/v1/users/${segment(user.name)}`) }) })) },
      ],
    }),
  ];
}

const patterns = (list) => (list.length ? list.map((pattern) => [h('code', null, pattern), ' ']) : '–');
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

function edit(user) {
  return ask({
    title: user ? `User ${user.name}` : 'Add a user', verb: user ? 'Change' : 'Add',
    body: [
      !user && field('Name', h('input', { name: 'name', required: true, autocomplete: 'off', autocapitalize: 'off' })),
      field('Password', h('input', { name: 'password', type: 'password', autocomplete: 'new-password', required: !user }), user && 'Empty: it stays as it is.'),
      field('Role in the console', select({ name: 'role' }, [['', 'none'], ['viewer', 'viewer: reads'], ['operator', 'operator: nodes, stores, plans'], ['admin', 'admin: also users and settings']], user?.role ?? '')),
      field('Stores to read', h('input', { name: 'stores', value: user?.stores.join(' ') ?? '*' }), 'Names or patterns such as feed-*, with spaces between them.'),
      field('Stores to write', h('input', { name: 'writes', value: user?.writes.join(' ') ?? '' })),
      check('RESP administration', { name: 'admin', checked: user?.admin }),
    ],
    submit: async (form) => {
      const { name, password, role, stores, writes, admin } = form.elements;
      await put(`/v1/users/${segment(user?.name ?? name.value)}`, {
        ...(password.value && { password: password.value }),
        stores: words(stores.value), writes: words(writes.value), admin: admin.checked, role: role.value || null,
      });
    },
  });
}
