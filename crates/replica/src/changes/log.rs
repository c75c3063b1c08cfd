//! The latest changes of a partition, in memory, while clients follow it; and the writes that all replicas have.
//!
//! The memory of all logs is bounded. A log that is too long forgets its first changes: clients that have not read them
//! scan the records.
//!
//! **The writes that all replicas have** are a vector clock over all keys of the partition. The counters of a replica's
//! dots grow in the partition. So when this replica has seen a dot, its author had given all lower ones, and has them in
//! its table. A mark is the clock of all dots seen here at some time. After a comparison with each other replica that
//! began later, this replica covers all dots of the mark; after one more, all others do, too. Then none of them is ever
//! new to any replica, as long as the replica that gave it is compared: dots of other nodes count when they are as old
//! as the grace period of tombstones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{ClockEntry, Dot, Record, VectorClock};
use tokio::sync::watch;

/// The bytes of changes that all logs keep together.
const LOGS_BYTES_MAX: usize = 64 << 20;

/// The memory that a change takes besides its key and its record, in bytes.
const CHANGE_BYTES: usize = 96;

/// A log that no client reads for this long ends.
const UNREAD_MAX: Duration = Duration::from_secs(600);

/// Counters that are this far ahead of the clock do not count as seen, in milliseconds: a client may have forged them.
const AHEAD_MS_MAX: u64 = 60_000;

/// How many replicas a clock has entries of; those with the highest counters stay.
pub(super) const ENTRIES_MAX: usize = 64;

/// The time between two marks, in milliseconds.
const MARK_PERIOD_MS: u64 = 1000;

/// How many marks wait for comparisons. If there are more, every second one is forgotten.
const MARKS_MAX: usize = 64;

/// A moment, by two clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Milliseconds since the process started.
    pub(crate) ms: u64,
    /// Milliseconds since 1970.
    pub(crate) unix_ms: u64,
}

/// The latest changes of a partition.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    id: u64,
    /// The number of the last change; numbers are consecutive, from 1.
    last: u64,
    changes: VecDeque<LoggedChange>,
    bytes: usize,
    /// All dots seen here; complete once the table was scanned.
    seen: VectorClock,
    /// Where the scan of the table continues; `None` once it has ended.
    scan: Option<u64>,
    /// In the order of time.
    marks: VecDeque<Mark>,
    /// The writes that all replicas have, and when these were all, in milliseconds since 1970.
    everywhere: (VectorClock, u64),
    read_at: Instant,
    news: watch::Sender<u64>,
    /// How many logs there are.
    logs: Arc<AtomicUsize>,
}

/// A change in a log.
#[derive(Debug, Clone)]
pub(crate) struct LoggedChange {
    pub(crate) table_key: Bytes,
    pub(crate) record: Bytes,
}

/// The dots seen here at a moment.
#[derive(Debug)]
struct Mark {
    at: Moment,
    seen: VectorClock,
    /// When this replica was known to cover all of them, in milliseconds since the process started.
    covered_ms: Option<u64>,
}

impl ChangeLog {
    /// An empty log. `logs` counts all logs of the process.
    pub(crate) fn new(id: u64, now: Instant, logs: &Arc<AtomicUsize>) -> Self {
        logs.fetch_add(1, Relaxed);
        Self {
            id,
            last: 0,
            changes: VecDeque::new(),
            bytes: 0,
            seen: VectorClock::new(),
            scan: Some(0),
            marks: VecDeque::new(),
            everywhere: Default::default(),
            read_at: now,
            news: watch::Sender::new(0),
            logs: Arc::clone(logs),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether it still has all changes after this one.
    pub(crate) fn has_after(&self, number: u64) -> bool {
        (self.last - self.changes.len() as u64..=self.last).contains(&number)
    }

    /// The changes after one that [it has](Self::has_after), with their numbers.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = (u64, &LoggedChange)> {
        let first = self.last - self.changes.len() as u64;
        let skipped = number.saturating_sub(first) as usize;
        (first + 1..).zip(&self.changes).skip(skipped)
    }

    /// A client reads: its waiter is told of all changes from now on.
    pub(crate) fn read(&mut self, now: Instant) -> watch::Receiver<u64> {
        self.read_at = now;
        self.news.subscribe()
    }

    /// Whether clients have left it.
    pub(crate) fn is_unread(&self, now: Instant) -> bool {
        self.news.receiver_count() == 0 && now.saturating_duration_since(self.read_at) > UNREAD_MAX
    }

    /// Adds changes that can be read from now on.
    pub(crate) fn add(&mut self, changes: impl Iterator<Item = LoggedChange>, now_unix_ms: u64) {
        for change in changes {
            // A record that was just written is intact.
            if let Ok(context) = Record::decode_context(&change.record) {
                see(&mut self.seen, context.entries(), now_unix_ms);
            }
            self.last += 1;
            self.bytes += change.bytes();
            self.changes.push_back(change);
        }
        let bytes_max = LOGS_BYTES_MAX / self.logs.load(Relaxed).max(1);
        while self.bytes > bytes_max
            && let Some(first) = self.changes.pop_front()
        {
            self.bytes -= first.bytes();
        }
        self.news.send_replace(self.last);
    }

    /// Where the scan of the table for its dots continues; `None` once it has ended.
    pub(crate) fn scan(&self) -> Option<u64> {
        self.scan
    }

    /// The table was scanned since the log began, up to the place `next` or to its end: it has these dots.
    pub(crate) fn scanned(&mut self, seen: &VectorClock, next: Option<u64>) {
        see(&mut self.seen, seen.entries(), u64::MAX);
        self.scan = next;
    }

    /// The writes that all replicas have, and when these were all, in milliseconds since 1970.
    pub(crate) fn everywhere(&self) -> &(VectorClock, u64) {
        &self.everywhere
    }

    /// Notes that this replica has completed comparisons with all others that began at a time, in milliseconds since the process
    /// started: `None` if one of them was not compared, `u64::MAX` if there are no others. `is_compared` tells whether a
    /// node is this one or one of the others.
    pub(crate) fn compared(
        &mut self,
        now: Moment,
        began_ms: Option<u64>,
        is_compared: impl Fn(NodeId) -> bool,
        grace_ms: u64,
    ) {
        if self.scan.is_some() {
            return;
        }
        if self
            .marks
            .back()
            .is_none_or(|last| now.ms.saturating_sub(last.at.ms) >= MARK_PERIOD_MS)
            || began_ms == Some(u64::MAX)
        {
            self.marks.push_back(Mark {
                at: now,
                seen: self.seen.clone(),
                covered_ms: None,
            });
        }
        let is_later = |ms| began_ms.is_some_and(|began_ms| began_ms > ms);
        let mut done = None;
        for (at, mark) in self.marks.iter_mut().enumerate() {
            if mark.covered_ms.is_some_and(is_later) || began_ms == Some(u64::MAX) {
                done = Some(at);
            } else if mark.covered_ms.is_none() && is_later(mark.at.ms) {
                mark.covered_ms = Some(now.ms);
            }
        }
        if let Some(mark) = done.and_then(|done| self.marks.drain(..=done).next_back()) {
            let old = mark.at.unix_ms.saturating_sub(grace_ms);
            let counts = |entry: &ClockEntry| match is_compared(entry.replica.node) {
                true => *entry,
                false => ClockEntry {
                    counter: entry.counter.min(old),
                    ..*entry
                },
            };
            let entries: Vec<ClockEntry> = mark
                .seen
                .entries()
                .iter()
                .map(counts)
                .filter(|entry| entry.counter > 0)
                .collect();
            see(&mut self.everywhere.0, &entries, u64::MAX);
            self.everywhere.1 = mark.at.unix_ms;
        }
        if self.marks.len() > MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                // The first is the next to be covered.
                at % 2 == 1
            });
        }
    }
}

impl LoggedChange {
    fn bytes(&self) -> usize {
        self.table_key.len() + self.record.len() + CHANGE_BYTES
    }
}

impl Drop for ChangeLog {
    fn drop(&mut self) {
        self.logs.fetch_sub(1, Relaxed);
    }
}

/// Adds dots to those that a clock has seen.
pub(crate) fn see(clock: &mut VectorClock, entries: &[ClockEntry], now_unix_ms: u64) {
    let counter_max = now_unix_ms.saturating_add(AHEAD_MS_MAX);
    for entry in entries.iter().filter(|entry| entry.counter <= counter_max) {
        let dot = Dot {
            replica: entry.replica,
            counter: entry.counter,
        };
        if !clock.covers(dot) {
            clock.increment(dot, entry.counter);
        }
    }
    if clock.entries().len() > ENTRIES_MAX {
        let mut entries = clock.entries().to_vec();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.counter));
        entries.truncate(ENTRIES_MAX);
        *clock = VectorClock::new();
        see(clock, &entries, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::versioned::{DotSource, Over, ReplicaId, Update};

    use super::*;

    const fn replica(node: NodeId) -> ReplicaId {
        ReplicaId { node, incarnation: 1 }
    }

    fn log() -> ChangeLog {
        let mut log = ChangeLog::new(1, Instant::now(), &Arc::default());
        log.scanned(&VectorClock::new(), None);
        log
    }

    fn change(node: u32, last: u64, bytes: usize) -> LoggedChange {
        let mut dots = DotSource::new(replica(NodeId::new(node).unwrap()), last);
        let update = Update::put(vec![b'v'; bytes].into(), 1, None);
        let record = Record::write(None, &mut dots, Over::All(&VectorClock::new()), update).unwrap();
        LoggedChange {
            table_key: "k".into(),
            record: record.to_bytes().into(),
        }
    }

    fn everywhere(log: &ChangeLog, node: u32) -> u64 {
        log.everywhere().0.counter(replica(NodeId::new(node).unwrap()))
    }

    fn at(ms: u64) -> Moment {
        Moment { ms, unix_ms: ms }
    }

    #[test]
    fn writes_are_everywhere_after_two_rounds_of_comparisons() {
        let mut log = log();
        log.add([change(1, 6, 1), change(2, 8, 1)].into_iter(), 100);
        let mut compared = |ms, began_ms| {
            log.compared(at(ms), began_ms, |node| node == NodeId::FIRST, 1_000_000);
            (everywhere(&log, 1), everywhere(&log, 2), log.everywhere().1)
        };
        assert_eq!(compared(100, None), (0, 0, 0));
        // It began before the mark.
        assert_eq!(compared(200, Some(100)), (0, 0, 0));
        assert_eq!(compared(300, Some(150)), (0, 0, 0));
        // The same comparison counts once.
        assert_eq!(compared(400, Some(150)), (0, 0, 0));
        assert_eq!(compared(500, Some(300)), (0, 0, 0));
        // The dots of node 2, which is not compared, do not count.
        assert_eq!(compared(600, Some(301)), (7, 0, 100));
    }

    #[test]
    fn marks_wait_for_comparisons_that_take_minutes() {
        let mut log = log();
        log.add([change(1, 6, 1)].into_iter(), 100);
        for second in 1..1000 {
            let began_ms = 1000 * (second - second % 240);
            let began_ms = Some(began_ms).filter(|&began_ms| began_ms > 0);
            log.compared(at(1000 * second), began_ms, |_| true, 0);
        }
        assert_eq!(everywhere(&log, 1), 7);
        assert!(log.everywhere().1 > 200_000, "{}", log.everywhere().1);
    }

    #[test]
    fn writes_of_a_single_replica_are_everywhere_at_once() {
        let mut log = log();
        log.add([change(1, 6, 1)].into_iter(), 100);
        log.compared(at(100), Some(u64::MAX), |_| true, 0);
        assert_eq!((everywhere(&log, 1), log.everywhere().1), (7, 100));
        log.add([change(1, 7, 1)].into_iter(), 100);
        log.compared(at(101), Some(u64::MAX), |_| true, 0);
        assert_eq!((everywhere(&log, 1), log.everywhere().1), (8, 101));
    }

    #[test]
    fn dots_of_a_former_owner_count_when_they_are_old() {
        let mut log = log();
        log.add([change(2, 6, 1)].into_iter(), 100);
        log.compared(at(100), Some(u64::MAX), |node| node == NodeId::FIRST, 97);
        assert_eq!(everywhere(&log, 2), 3);
        log.compared(at(5000), Some(u64::MAX), |node| node == NodeId::FIRST, 97);
        assert_eq!(everywhere(&log, 2), 7);
    }

    #[test]
    fn forged_counters_hide_no_writes() {
        let mut log = log();
        log.add([change(1, 100 + AHEAD_MS_MAX, 1)].into_iter(), 100);
        log.compared(at(100), Some(u64::MAX), |_| true, 0);
        assert_eq!(everywhere(&log, 1), 0);
    }

    #[test]
    fn many_marks_and_replicas_are_forgotten() {
        let mut log = log();
        for number in 1..=500 {
            log.add([change(number, u64::from(number), 1)].into_iter(), 1 << 40);
            log.compared(at(1000 * u64::from(number)), None, |_| true, 0);
            assert!(log.marks.len() <= MARKS_MAX && log.seen.entries().len() <= ENTRIES_MAX);
        }
        log.compared(at(600_000), Some(400_000), |_| true, 0);
        log.compared(at(700_000), Some(600_001), |_| true, 0);
        let newest = log.everywhere().0.entries().iter().map(|entry| entry.counter).max();
        assert!(newest.is_some_and(|newest| (300..=401).contains(&newest)), "{newest:?}");
    }

    #[test]
    fn the_memory_of_all_logs_is_bounded() {
        let logs = Arc::default();
        let [mut one, other] = [1, 2].map(|id| ChangeLog::new(id, Instant::now(), &logs));
        let mut waiter = one.read(Instant::now());
        for number in 1..=70 {
            one.add([change(1, number, 1 << 20)].into_iter(), 1000);
        }
        assert!(waiter.has_changed().unwrap());
        assert_eq!(*waiter.borrow_and_update(), 70);
        assert!(one.bytes <= LOGS_BYTES_MAX / 2, "{}", one.bytes);
        assert!(!one.has_after(0) && one.has_after(45) && one.has_after(70) && !one.has_after(71));
        assert_eq!(
            one.after(45).map(|(number, _)| number).collect::<Vec<_>>(),
            (46..=70).collect::<Vec<_>>()
        );
        drop(other);
        for number in 71..=200 {
            one.add([change(1, number, 1 << 20)].into_iter(), 1000);
        }
        assert!((LOGS_BYTES_MAX / 2..=LOGS_BYTES_MAX).contains(&one.bytes));
    }
}
