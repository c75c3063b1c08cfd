// Says when a page should ask again: by server-sent events or, without them, by the clock.

const POLL_MS = 5000;
const POLL_LIVE_MS = 30000; // a connection that died without a word must not freeze the page for good
const RETRY_MS_MAX = 60000;

const TOPICS = ['nodes', 'routers', 'stores', 'plans', 'routing', 'users', 'settings', 'decisions', 'audit'];

/// Starts to watch for changes. `changed(topics)` gets the topics, or null if anything may have changed;
/// `status(live)` hears whether events arrive. Returns a function that ends it.
export function watch(changed, status) {
  let source = null;
  let retry_ms = 1000;
  let retry = 0;
  let live = false;
  let asked_at = Date.now();

  const set = (next) => {
    live = next;
    status(live);
  };
  const ask = (topics) => {
    if (topics === null) asked_at = Date.now();
    changed(topics);
  };
  const connect = () => {
    source = new EventSource('/v1/events');
    source.addEventListener('hello', () => {
      retry_ms = 1000;
      set(true);
      ask(null); // what changed while nothing was heard
    });
    source.addEventListener('change', (event) => ask(topicsOf(event.data)));
    source.addEventListener('load', () => ask(['load']));
    source.onerror = () => {
      source.close();
      set(false);
      clearTimeout(retry);
      retry = setTimeout(connect, retry_ms);
      retry_ms = Math.min(2 * retry_ms, RETRY_MS_MAX);
    };
  };
  const poll = setInterval(() => {
    if (!document.hidden && Date.now() - asked_at >= (live ? POLL_LIVE_MS : POLL_MS) - 100) ask(null);
  }, POLL_MS);
  const seen = () => document.hidden || ask(null);
  document.addEventListener('visibilitychange', seen);
  set(false);
  connect();
  return () => {
    source.close();
    clearTimeout(retry);
    clearInterval(poll);
    document.removeEventListener('visibilitychange', seen);
  };
}

function topicsOf(data) {
  try {
    const { what } = JSON.parse(data);
    return what.filter((topic) => TOPICS.includes(topic));
  } catch {
    return null;
  }
}
