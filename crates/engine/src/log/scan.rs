//! Scans of a table in key order, as of the beginning of the scan.
//!
//! A scan reads a few keys at a time. A write to a key that the scan has not reached saves the old record for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Shared;
use super::table::{Contents, Held, LogTable, held, on_disk};
use crate::engine::Scan;
use crate::error::EngineError;

/// The number of keys read at a time.
const TAKEN_MAX: usize = 64;

/// The old records of keys that changed since a scan began, for the keys that it has not reached.
#[derive(Debug)]
pub(super) struct Past {
    next: Vec<u8>,
    to: Option<Vec<u8>>,
    changed: BTreeMap<Vec<u8>, Option<Held>>,
}

impl Past {
    fn covers(&self, key: &[u8]) -> bool {
        key >= &self.next[..] && self.to.as_ref().is_none_or(|to| key < &to[..])
    }

    /// Saves the record that a key had until now.
    pub(super) fn remember(&mut self, key: &[u8], had: impl FnOnce() -> Option<Held>) {
        if self.covers(key) && !self.changed.contains_key(key) {
            self.changed.insert(key.to_vec(), had());
        }
    }
}

/// A scan in progress.
pub(super) struct LogScan {
    shared: Arc<Shared>,
    table: Arc<LogTable>,
    past: Arc<Mutex<Past>>,
    taken: VecDeque<Held>,
    has_ended: bool,
}

impl LogScan {
    pub(super) fn begin(shared: &Arc<Shared>, table: &Arc<LogTable>, from: &[u8], to: Option<&[u8]>) -> Self {
        let past = Arc::new(Mutex::new(Past {
            next: from.to_vec(),
            to: to.map(<[u8]>::to_vec),
            changed: BTreeMap::new(),
        }));
        table.write().tell(&past);
        Self {
            shared: Arc::clone(shared),
            table: Arc::clone(table),
            past,
            taken: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Reads the next records.
    fn take(&mut self) {
        let contents = self.table.read();
        let mut past = self.past.lock();
        let (taken, last) = next_of(&contents, &past, &self.table, &self.shared);
        self.taken = taken;
        match last {
            Some(mut last) => {
                last.push(0);
                past.changed = past.changed.split_off(&last);
                past.next = last;
            }
            None => self.has_ended = true,
        }
    }
}

/// The next records, and the last key that was read; `None` at the end of the table.
fn next_of(contents: &Contents, past: &Past, table: &LogTable, shared: &Shared) -> (VecDeque<Held>, Option<Vec<u8>>) {
    let mut taken = VecDeque::new();
    let mut last = None;
    let mut now = contents.tree.entries_from(&past.next).peekable();
    let mut then = past.changed.iter().peekable();
    while taken.len() < TAKEN_MAX {
        let is_changed = match (now.peek(), then.peek()) {
            (Some(entry), Some((key, _))) => key[..] <= *entry.key(),
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => break,
        };
        let had = match is_changed {
            true => {
                let Some((key, had)) = then.next() else { break };
                now.next_if(|entry| entry.key() == &key[..]);
                last = Some(key.clone());
                had.clone()
            }
            false => {
                let Some(entry) = now.next().filter(|entry| past.covers(entry.key())) else {
                    break;
                };
                last = Some(entry.key().to_vec());
                match &contents.segments {
                    Some(segments) if !entry.is_hot() => on_disk(entry, table.number, segments).map(Held::Disk),
                    _ => held(entry, table.number, &shared.segments),
                }
            }
        };
        taken.extend(had);
    }
    (taken, last)
}

impl Iterator for LogScan {
    type Item = <Scan as Iterator>::Item;

    fn next(&mut self) -> Option<Result<(Bytes, Bytes), EngineError>> {
        while self.taken.is_empty() {
            if self.has_ended {
                return None;
            }
            self.take();
        }
        let pair = self.shared.read(self.taken.pop_front()?);
        // A damaged record does not end the scan.
        if pair.as_ref().is_err_and(|error| error.damaged_key().is_none()) {
            self.has_ended = true;
            self.taken.clear();
        }
        Some(pair.map(|pair| (pair.shared_key(), pair.shared_value())))
    }
}
