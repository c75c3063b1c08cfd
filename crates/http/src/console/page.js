// The page that is shown: asks for its data, draws it, and asks again when something changes.
//
// A view is { title, load(page), draw(page, data) }. `load` uses `page.get`, which asks again only for what changed.

import { Failure, get } from './api.js';
import { h, patchChildren } from './dom.js';

const REFRESH_MS_MIN = 400;

export let current = null;

/// Asks again for everything that the current page shows.
export const refresh = () => current?.refresh(null);

export class Page {
  constructor(view, parameters, place) {
    this.view = view;
    this.parameters = parameters;
    this.place = place;
    this.state = {}; // what the reader has chosen: filters, orders
    this.data = null;
    this.failure = null;
    this.answers = new Map();
    this.asked = new Set(); // requests under way
    this.loaded_at = 0;
    this.timer = 0; // after an event
    this.under_way = 0; // for what goes on without events
    this.loading = false;
    this.again = false;
    current = this;
  }

  /// The answer to a request, as of the last change of one of the topics. With a `fallback`, that instead of 404.
  get(path, topics, fallback) {
    return this.keep(path, topics, () => get(path).catch((failure) => {
      if (fallback !== undefined && failure.status === 404) return fallback;
      throw failure;
    }));
  }

  async keep(key, topics, ask) {
    const kept = this.answers.get(key);
    if (kept) return kept.answer;
    const asked = { topics, outdated: false };
    this.asked.add(asked);
    try {
      const answer = await ask();
      if (!asked.outdated) this.answers.set(key, { topics, answer });
      return answer;
    } finally {
      this.asked.delete(asked);
    }
  }

  /// Forgets the answers that the topics concern (null: all), those under way, too. Returns whether there were any.
  forget(topics) {
    const concerns = (kept) => topics === null || kept.topics.some((topic) => topics.includes(topic));
    const keys = [...this.answers].filter(([, kept]) => concerns(kept)).map(([key]) => key);
    keys.forEach((key) => this.answers.delete(key));
    const asked = [...this.asked].filter(concerns);
    asked.forEach((request) => { request.outdated = true; });
    return keys.length + asked.length > 0;
  }

  /// Forgets what the topics concern, and loads the page soon.
  refresh(topics) {
    if (!this.forget(topics) && topics !== null) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), Math.max(0, this.loaded_at + REFRESH_MS_MIN - Date.now()));
  }

  /// Loads the page after a time, without the answers of the topics: for what is under way. Events do not put it off.
  soon(topics, delay_ms) {
    this.under_way ||= setTimeout(() => {
      this.under_way = 0;
      this.forget(topics);
      this.load();
    }, delay_ms);
  }

  async load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    try {
      this.data = await this.view.load(this);
      this.failure = null;
    } catch (failure) {
      if (!(failure instanceof Failure)) console.error(failure);
      this.failure = failure;
    }
    this.loading = false;
    this.loaded_at = Date.now();
    if (current !== this) return;
    this.draw();
    if (this.again) {
      this.again = false;
      this.load();
    }
  }

  draw() {
    if (current !== this) return;
    const { title } = this.view;
    const name = typeof title === 'function' ? title(this) : title;
    document.title = `${name} · fondaco`;
    const next = h('div', null,
      this.failure && h('p', { class: 'banner bad', role: 'alert' }, this.failure.message),
      this.data !== null ? this.view.draw(this, this.data) : h('h1', { tabindex: -1 }, name));
    const active = document.activeElement;
    patchChildren(this.place, next);
    if (active !== document.activeElement && active.isConnected) active.focus({ preventScroll: true }); // its row has moved
  }

  leave() {
    clearTimeout(this.timer);
    clearTimeout(this.under_way);
    if (current === this) current = null;
  }
}
