//! Watches: the changes since the last call.
//!
//! Changes are collected, not queued: however slowly they are read, a watch holds each path once, and beyond
//! [`PATHS_MAX`] it returns [`WatchEvent::Everything`] instead.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::on_drop::OnDrop;
use crate::path::EntryPath;

/// How many changed paths a watch holds.
const PATHS_MAX: usize = 10_000;

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Entries were made, written or deleted at these paths.
    Changed(BTreeSet<EntryPath>),
    /// Anything may have changed: read all entries again. It is the first event, and comes whenever changes may have
    /// been missed: after [`Suspended`](Self::Suspended), or with a new session.
    Everything,
    /// The service does not answer: earlier reads may become stale, and changes are not reported.
    Suspended,
    /// The session was ended; nothing follows.
    Closed,
}

/// Reports changes. Dropping it ends the watch.
pub struct Watch {
    shared: Arc<Shared>,
    _end: Option<OnDrop>,
}

struct Shared {
    pending: Mutex<Pending>,
    arrived: Condvar,
}

#[derive(Default)]
struct Pending {
    changed: BTreeSet<EntryPath>,
    everything: bool,
    suspended: bool,
    closed: bool,
}

impl Pending {
    fn take(&mut self) -> Option<WatchEvent> {
        if std::mem::take(&mut self.everything) {
            self.changed.clear();
            return Some(WatchEvent::Everything);
        }
        if !self.changed.is_empty() {
            return Some(WatchEvent::Changed(std::mem::take(&mut self.changed)));
        }
        if std::mem::take(&mut self.suspended) {
            return Some(WatchEvent::Suspended);
        }
        self.closed.then_some(WatchEvent::Closed)
    }
}

impl Watch {
    /// The same watch, with an action to run when it is dropped.
    pub(crate) fn ending_with(self, end: OnDrop) -> Self {
        let _end = Some(end);
        Self { _end, ..self }
    }

    /// Waits for the next event; `None` after the timeout.
    pub fn next(&self, timeout: Duration) -> Option<WatchEvent> {
        let deadline = Instant::now() + timeout;
        let mut pending = self.shared.pending.lock();
        loop {
            if let Some(event) = pending.take() {
                return Some(event);
            }
            if self.shared.arrived.wait_until(&mut pending, deadline).timed_out() {
                return pending.take();
            }
        }
    }
}

/// The side of a watch where events are put in. It does not keep the watch alive.
#[derive(Clone)]
pub(crate) struct Feed(Weak<Shared>);

impl Feed {
    /// A watch and its feed.
    pub(crate) fn new() -> (Watch, Feed) {
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            arrived: Condvar::new(),
        });
        let feed = Feed(Arc::downgrade(&shared));
        (Watch { shared, _end: None }, feed)
    }

    /// Whether the watch still exists.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn changed(&self, path: &EntryPath) {
        self.put(|pending| {
            if pending.everything {
                return;
            }
            pending.changed.insert(path.clone());
            pending.everything = pending.changed.len() > PATHS_MAX;
        });
    }

    /// Adds [`WatchEvent::Everything`], which also ends a suspension.
    pub(crate) fn everything(&self) {
        self.put(|pending| {
            pending.everything = true;
            pending.suspended = false;
        });
    }

    pub(crate) fn suspended(&self) {
        self.put(|pending| pending.suspended = true);
    }

    pub(crate) fn closed(&self) {
        self.put(|pending| pending.closed = true);
    }

    fn put(&self, change: impl FnOnce(&mut Pending)) {
        if let Some(shared) = self.0.upgrade() {
            change(&mut shared.pending.lock());
            shared.arrived.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn path(text: &str) -> EntryPath {
        text.parse().unwrap()
    }

    #[test]
    fn changes_are_collected_until_they_are_taken() {
        let (watch, feed) = Feed::new();
        for name in ["b", "a", "b"] {
            feed.changed(&path(name));
        }
        let changed = WatchEvent::Changed([path("a"), path("b")].into());
        assert_eq!(watch.next(NOW), Some(changed));
        assert_eq!(watch.next(NOW), None);
    }

    #[test]
    fn everything_replaces_all_changes_and_ends_a_suspension() {
        let (watch, feed) = Feed::new();
        feed.changed(&path("a"));
        feed.suspended();
        feed.everything();
        assert_eq!(watch.next(NOW), Some(WatchEvent::Everything));
        assert_eq!(watch.next(NOW), None);
    }

    #[test]
    fn more_changes_than_a_watch_holds_become_everything() {
        let (watch, feed) = Feed::new();
        (0..=PATHS_MAX).for_each(|n| feed.changed(&path(&n.to_string())));
        assert_eq!(watch.next(NOW), Some(WatchEvent::Everything));
        assert_eq!(watch.next(NOW), None);
    }

    #[test]
    fn a_closed_watch_reports_earlier_events_and_then_its_end() {
        let (watch, feed) = Feed::new();
        feed.changed(&path("a"));
        feed.closed();
        assert!(matches!(watch.next(NOW), Some(WatchEvent::Changed(_))));
        assert_eq!(watch.next(NOW), Some(WatchEvent::Closed));
        assert_eq!(watch.next(NOW), Some(WatchEvent::Closed));
    }

    #[test]
    fn a_waiting_reader_is_woken() {
        let (watch, feed) = Feed::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| watch.next(Duration::from_secs(30)));
            feed.everything();
            assert_eq!(waiting.join().unwrap(), Some(WatchEvent::Everything));
        });
    }
}
