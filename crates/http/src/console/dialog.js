// Dialogs, notices, and buttons that do something.

import { may } from './api.js';
import { h } from './dom.js';
import { refresh } from './page.js';

const NOTICE_MS = 6000;
const NOTICES_MAX = 4;

/// Shows a short message; an error stays until it is dismissed.
export function notice(text, bad = false) {
  const place = document.getElementById('notices');
  const note = h('div', { class: bad ? 'notice bad' : 'notice' }, h('span', null, text),
    h('button', { class: 'plain', 'aria-label': 'Dismiss', onclick: () => note.remove() }, '×'));
  place.append(note);
  while (place.children.length > NOTICES_MAX) place.firstChild.remove();
  if (!bad) setTimeout(() => note.remove(), NOTICE_MS);
}

/// A button that does something on the server; null if the session may not. `done` is the message afterwards.
export function action(label, { needs = 'operator', danger, disabled, done, run, key, name }) {
  if (!may(needs)) return null;
  return h('button', {
    class: danger ? 'danger' : null, disabled, 'data-key': key, 'aria-label': name,
    onclick: async (event) => {
      const button = event.currentTarget;
      button.setAttribute('aria-busy', 'true');
      try {
        if (await run() !== false) {
          if (done) notice(done);
          refresh();
        }
      } catch (failure) {
        notice(failure.message, true);
      }
      button.removeAttribute('aria-busy');
    },
  }, label);
}

/// A dialog with a form. `submit(form)` does the work: if it fails, the dialog shows why and stays. Resolves to
/// whether it was submitted. `extra` are further buttons, { label, run(form) → nodes to show, or nothing to close }.
export function ask({ title, body, verb, danger, submit, extra = [], cancel = 'Cancel' }) {
  return new Promise((resolve) => {
    let submitted = false;
    const result = h('div', { class: 'result', role: 'status' });
    const attempt = async (run) => {
      if (form.hasAttribute('aria-busy')) return; // sent already
      form.setAttribute('aria-busy', 'true');
      try {
        const shown = await run(form);
        if (shown) {
          result.replaceChildren(...[shown].flat(Infinity));
        } else {
          submitted = true;
          dialog.close();
        }
      } catch (failure) {
        result.replaceChildren(h('p', { class: 'banner bad', role: 'alert' }, failure.message));
      }
      form.removeAttribute('aria-busy');
      result.scrollIntoView({ block: 'nearest' });
    };
    const form = h('form', {
      onsubmit: (event) => {
        event.preventDefault();
        attempt(submit);
      },
    },
    h('h2', { id: 'dialog-title' }, title), body, result,
    h('div', { class: 'actions end' },
      h('button', { type: 'button', onclick: () => dialog.close() }, cancel),
      extra.map(({ label, run }) => h('button', { type: 'button', onclick: () => form.reportValidity() && attempt(run) }, label)),
      verb && h('button', { class: danger ? 'danger solid' : 'solid' }, verb)));
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(submitted);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/// Asks before something dangerous is done. With a `phrase`, the reader has to type it.
export function confirm({ title, text, verb, phrase, submit }) {
  return ask({
    title, verb, danger: true,
    body: [[text].flat().map((line) => h('p', null, line)),
      phrase && field(['Type ', h('b', null, phrase), ' to confirm'], h('input', { name: 'phrase', required: true, autocomplete: 'off' }))],
    submit: async (form) => {
      if (phrase && form.elements.phrase.value !== phrase) throw new Error('the typed name differs');
      await submit();
    },
  });
}

/// A labelled control, with a hint below it, which is not a part of its name.
export function field(label, control, hint) {
  const id = hint ? `hint-${control.name}` : null;
  if (id) control.setAttribute('aria-describedby', id);
  return h('div', { class: 'field' }, h('label', null, h('span', null, label), control), hint && h('small', { id }, hint));
}

/// A labelled checkbox or radio button.
export const check = (label, attributes) =>
  h('label', { class: 'check' }, h('input', { type: 'checkbox', ...attributes }), h('span', null, label));

/// A list of [value, label] to choose from.
export const select = (attributes, options, chosen) =>
  h('select', attributes, options.map(([value, label]) => h('option', { value, selected: String(value) === String(chosen) }, label)));
