//! Reads the changes of a partition after a position: from its log, or by a scan of its records.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::{Record, VectorClock};
use fondaco_model::{NodeId, PartitionCount, PartitionId};
use tokio::sync::watch;

use super::log::{ChangeLog, LoggedChange, Moment, see};
use super::position::{ChangePosition, ChangesFrom};
use crate::partition::Partition;
use crate::reads::scanning::{Found, RECORD_WIDTH, ReadableScan};
use crate::replicas::Replicas;
use crate::shared::Shared;
use crate::store::{HeldStore, Holding};
use crate::table_key::{parse_record_key, range};

/// How many bytes of records one result contains, except when a single one is longer.
const BYTES_MAX: usize = 4 << 20;

/// How long to wait for the shard of a partition before its log begins. It begins all the same, for a later read.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(1);

/// For [`ChangesFrom::Now`]: how much earlier the clock of a writer may be, in milliseconds.
const NOW_SKEW_MS: u64 = 60_000;

/// Changes of a partition, in an order that keeps the order of each key.
#[derive(Debug)]
pub struct Changes {
    /// The changes; possibly empty although more follow.
    pub changes: Vec<RecordChange>,
    /// The position after them. It covers more than that of the last change, also if there are no changes: clients that keep it are sent
    /// fewer changes again after a change of the replica.
    pub position: ChangePosition,
    /// Whether there were no more when this was read.
    pub is_end: bool,
    news: watch::Receiver<u64>,
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordChange {
    /// The key.
    pub key: Bytes,
    /// Its record after the change: all concurrent values, to be resolved as reads do; or a deletion, with the time of the write.
    /// Former values are not kept.
    pub record: Record,
    /// The position after it.
    pub position: ChangePosition,
}

/// Why changes cannot be read here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangesError {
    /// This node is no owner of the partition, has lost data of it, or knows of another number of partitions.
    #[error(
        "NOTHERE this node cannot return the changes of partition {partition} of {partitions}: ask another owner, by a newer topology"
    )]
    NotHere {
        /// The partition.
        partition: PartitionId,
        /// How many there are, as far as the caller knows.
        partitions: PartitionCount,
    },
    /// Deletions after the position may be forgotten, or the reader is too slow for a scan.
    #[error("TOOFARBEHIND {reason}: follow the store from its start")]
    TooFarBehind {
        /// Why.
        reason: &'static str,
    },
    /// The store evicts records.
    #[error("ERR store {store:?} evicts records, and its changes cannot be followed: use another engine")]
    Evicts {
        /// The store.
        store: String,
    },
    /// The records cannot be read.
    #[error("{0}: read from another replica")]
    Unreadable(String),
    /// The node is too busy, or is shutting down.
    #[error("OVERLOADED the writes of the partition wait too long: try again")]
    Busy,
}

impl Changes {
    /// Waits until there may be more. It ends by itself if the node loses the partition. Clients should read again once
    /// a minute in any case: the [position](Self::position) then covers more.
    pub async fn wait(&mut self) {
        // An error: the log has ended.
        let _ = self.news.changed().await;
    }
}

impl Replicas {
    /// The changes of a partition of this many, in a versioned store: about `count`, or fewer; those that are not there yet are not
    /// waited for ([`Changes::wait`]). It reads the disk, and waits for the commit threads: not for simulations. Any owner of the
    /// partition can continue a position, but at the replica that returned it nothing is returned twice.
    ///
    /// # Errors
    /// [`ChangesError`].
    pub fn changes(
        &self,
        store: u16,
        (partitions, partition): (PartitionCount, PartitionId),
        from: &ChangesFrom,
        count: usize,
    ) -> Result<Changes, ChangesError> {
        let not_here = ChangesError::NotHere { partition, partitions };
        let holding = self.shared.holding.load_full();
        let held = holding
            .served(store)
            .filter(|_| holding.admit_count(partitions).is_ok());
        let Some(held) = held.filter(|held| holding.may_tell(held, partition)) else {
            return Err(not_here);
        };
        if !held.is_compared() {
            let store = held.name.to_string();
            return Err(ChangesError::Evicts { store });
        }
        let partition = held.partition(partition).map_err(|_| not_here.clone())?;
        let reading = Reading {
            shared: &self.shared,
            store: held,
            partition,
            not_here,
        };
        reading.begin_log()?;
        if *from != ChangesFrom::Now {
            reading.complete_log()?;
        }
        compare(&self.shared, &holding, held, partition);
        reading.read(from, count.max(1))
    }
}

/// Ends the log of a partition that no client follows any longer, and updates the writes that all replicas have.
pub(crate) fn compare(shared: &Shared, holding: &Holding, store: &HeldStore, partition: &Partition) {
    if !partition.followed.is_followed() {
        return;
    }
    let others = holding.others(store, partition.id());
    // A remembered routing table may lack replicas.
    let certain = holding.cluster.as_ref().filter(|cluster| !cluster.is_remembered);
    let began_ms = certain.and_then(|_| partition.exchanged_with_all(&others));
    let own = certain.map(|cluster| cluster.node);
    let is_compared = |node: NodeId| others.contains(&node) || own == Some(node);
    let is_unread = partition.followed.with(|log| {
        // While it is locked: no dot is added later.
        let now = Moment {
            ms: shared.now_ms(),
            unix_ms: shared.host.unix_ms(),
        };
        log.compared(now, began_ms, is_compared, store.settings.tombstone_grace_ms);
        log.is_unread(shared.host.now())
    });
    if is_unread == Some(true) {
        partition.followed.end();
    }
}

/// A read of the changes of a partition.
struct Reading<'a> {
    shared: &'a Shared,
    store: &'a HeldStore,
    partition: &'a Arc<Partition>,
    not_here: ChangesError,
}

/// Records of a scan.
#[derive(Default)]
struct Page {
    /// By position, key in the table, and record.
    records: Vec<(u64, Bytes, Record)>,
    /// Where it ends, unless at the end of the partition.
    next: Option<u64>,
}

impl Reading<'_> {
    /// Begins the log, unless the partition has one.
    fn begin_log(&self) -> Result<(), ChangesError> {
        if self.partition.followed.is_followed() {
            return Ok(());
        }
        let host = &self.shared.host;
        let id = self.shared.change_log_id.fetch_add(1, Relaxed);
        let log = ChangeLog::new(id, host.now(), &self.shared.change_logs);
        let (sender, receiver) = mpsc::channel();
        let theirs = Arc::clone(self.partition);
        // Between two groups: each write is in the log, or can be read already.
        self.shared.between(self.shared.shard_of(self.partition), move || {
            theirs
                .followed
                .begin(log, || theirs.is_held() && !theirs.is_split() && !theirs.is_behind());
            // The caller may have given up.
            let _ = sender.send(());
        });
        receiver.recv_timeout(BEGIN_TIME_MAX).map_err(|_| ChangesError::Busy)
    }

    /// Scans the next records of the table for dots, until all were scanned once for the log. Reads need not wait for it: until then,
    /// positions cover nothing that other replicas have.
    fn complete_log(&self) -> Result<(), ChangesError> {
        let Some(_one_at_a_time) = self.partition.followed.completing() else {
            return Ok(());
        };
        let (id, Some(from)) = self.log(|log| (log.id(), log.scan()))? else {
            return Ok(());
        };
        let (mut seen, now_unix_ms) = (VectorClock::new(), self.shared.host.unix_ms());
        let (mut examined, mut last, mut next) = (0, None, None);
        self.scan(from, |place, _, record| {
            if examined >= self.shared.options.changes_examined_max && last != Some(place) {
                next = Some(place);
                return Ok(false);
            }
            (last, examined) = (Some(place), examined + 1);
            let context =
                Record::decode_context(&record).map_err(|error| ChangesError::Unreadable(error.to_string()))?;
            see(&mut seen, context.entries(), now_unix_ms);
            Ok(true)
        })?;
        self.log(|log| {
            if log.id() == id {
                log.scanned(&seen, next);
            }
        })
    }

    fn read(&self, from: &ChangesFrom, count: usize) -> Result<Changes, ChangesError> {
        let now_unix_ms = self.shared.host.unix_ms();
        let (mut position, news) = self.log(|log| {
            let news = log.read(self.shared.host.now());
            self.begin(from, log, now_unix_ms).map(|position| (position, news))
        })??;
        let mut changes = Vec::new();
        let mut left = Left {
            count,
            bytes: BYTES_MAX,
        };
        let was_scan = position.scan.is_some();
        let is_end = self.logged(&mut position, &mut left, &mut changes)?;
        if was_scan && is_end && left.has_some() {
            self.scanned(&mut position, &left, &mut changes)?;
        }
        Ok(Changes {
            is_end: is_end && !was_scan,
            changes,
            position,
            news,
        })
    }

    /// The position in the present log to begin at.
    fn begin(&self, from: &ChangesFrom, log: &ChangeLog, now_unix_ms: u64) -> Result<ChangePosition, ChangesError> {
        let begin = |since_unix_ms: u64, scan| ChangePosition {
            log: log.id(),
            last: log.last(),
            scan,
            seen: VectorClock::new(),
            seen_unix_ms: now_unix_ms,
            since_unix_ms,
        };
        let (after, is_there) = match from {
            ChangesFrom::Start => return Ok(begin(0, Some(0))),
            ChangesFrom::Now => return Ok(begin(now_unix_ms.saturating_sub(NOW_SKEW_MS), None)),
            ChangesFrom::Since(unix_ms) => (
                &ChangePosition {
                    seen_unix_ms: *unix_ms,
                    ..begin(*unix_ms, Some(0))
                },
                false,
            ),
            ChangesFrom::After(position) => (position, position.log == log.id() && position.last <= log.last()),
        };
        if is_there && log.has_after(after.last) {
            return Ok(after.clone());
        }
        if is_there && after.scan.is_some() {
            let reason = "more was written during the scan of the partition than memory keeps";
            return Err(ChangesError::TooFarBehind { reason });
        }
        // Clocks may differ by a part of the grace period.
        let kept_ms = self.store.settings.tombstone_grace_ms / 4 * 3;
        if after.seen_unix_ms.saturating_add(kept_ms) < now_unix_ms {
            let reason = "deletions after the position may have been collected, since it is older than three quarters of the grace \
                          period of tombstones";
            return Err(ChangesError::TooFarBehind { reason });
        }
        Ok(ChangePosition {
            seen: after.seen.clone(),
            seen_unix_ms: after.seen_unix_ms,
            ..begin(after.since_unix_ms, Some(0))
        })
    }

    /// Adds changes of the log after a position. Returns whether these were all.
    fn logged(
        &self,
        position: &mut ChangePosition,
        left: &mut Left,
        changes: &mut Vec<RecordChange>,
    ) -> Result<bool, ChangesError> {
        let passed = position.scan.unwrap_or(u64::MAX);
        let is_scanned = position.scan.is_some();
        let (taken, everywhere) = self
            .log(|log| {
                if log.id() != position.log || !log.has_after(position.last) {
                    return None;
                }
                let mut taken: Vec<(u64, LoggedChange)> = Vec::new();
                for (number, change) in log.after(position.last) {
                    if !left.has_some() {
                        return Some((taken, None));
                    }
                    position.last = number;
                    let place = parse_record_key(&change.table_key).map_or(0, |(place, _)| place);
                    if !is_scanned || place < passed {
                        left.take(change.record.len());
                        taken.push((number, change.clone()));
                    }
                }
                Some((taken, Some(log.everywhere().clone())))
            })?
            .ok_or(ChangesError::TooFarBehind {
                reason: "more was written than memory keeps",
            })?;
        let before = position.clone();
        for (number, LoggedChange { table_key, record }) in taken {
            let Some((_, key)) = parse_record_key(&table_key) else {
                continue;
            };
            changes.push(RecordChange {
                key,
                record: Record::decode(record).map_err(|error| ChangesError::Unreadable(error.to_string()))?,
                position: ChangePosition {
                    last: number,
                    ..before.clone()
                },
            });
        }
        if let Some((seen, seen_unix_ms)) = &everywhere
            && !is_scanned
        {
            see(&mut position.seen, seen.entries(), u64::MAX);
            position.seen_unix_ms = position.seen_unix_ms.max(*seen_unix_ms);
        }
        Ok(everywhere.is_some())
    }

    /// Adds records of the scan.
    fn scanned(
        &self,
        position: &mut ChangePosition,
        left: &Left,
        changes: &mut Vec<RecordChange>,
    ) -> Result<(), ChangesError> {
        let mut page = self.page(position, left)?;
        // The records of the group in progress that the scan saw are in the log then.
        self.shared.dots[self.shared.shard_of(self.partition)].wait_for_group();
        // Of keys that have changed since, the log has all changes.
        let changed: Option<HashSet<Bytes>> = self.log(|log| {
            let is_there = log.id() == position.log && log.has_after(position.last);
            is_there.then(|| {
                log.after(position.last)
                    .map(|(_, change)| change.table_key.clone())
                    .collect()
            })
        })?;
        let Some(changed) = changed else {
            let reason = "more was written during the scan of the partition than memory keeps";
            return Err(ChangesError::TooFarBehind { reason });
        };
        page.records.retain(|(_, table_key, _)| !changed.contains(table_key));
        let mut records = page.records.into_iter().peekable();
        while let Some((place, table_key, record)) = records.next() {
            // Keys with the same position are passed together.
            let is_last = records.peek().is_none_or(|(next, ..)| *next != place);
            let passed = place.saturating_add(u64::from(is_last));
            let Some((_, key)) = parse_record_key(&table_key) else {
                continue;
            };
            changes.push(RecordChange {
                key,
                record,
                position: ChangePosition {
                    scan: Some(passed),
                    ..position.clone()
                },
            });
        }
        position.scan = page.next;
        Ok(())
    }

    /// The next records of a scan that its position does not cover.
    fn page(&self, position: &ChangePosition, left: &Left) -> Result<Page, ChangesError> {
        let mut page = Page::default();
        let (mut examined, mut bytes, mut last) = (0, 0, None);
        self.scan(position.scan.unwrap_or(0), |place, table_key, record| {
            let is_enough = page.records.len() >= left.count
                || bytes >= left.bytes
                || examined >= self.shared.options.changes_examined_max;
            if is_enough && last.is_some_and(|last| last != place) {
                page.next = Some(place);
                return Ok(false);
            }
            (last, examined) = (Some(place), examined + 1);
            let length = record.len();
            let record = Record::decode(record).map_err(|error| ChangesError::Unreadable(error.to_string()))?;
            if !position.covers(&record) {
                bytes += length;
                page.records.push((place, table_key, record));
            }
            Ok(true)
        })?;
        Ok(page)
    }

    /// Scans the records of the partition from a position on, until one is refused.
    fn scan(
        &self,
        from: u64,
        mut take: impl FnMut(u64, Bytes, Bytes) -> Result<bool, ChangesError>,
    ) -> Result<(), ChangesError> {
        let failed = |error: fondaco_engine::EngineError| ChangesError::Unreadable(format!("IOERR {error}"));
        let (first, end) = range(self.partition.count(), self.partition.id(), 0, 0);
        let from = first.max(match from {
            0 => Bytes::new(),
            from => Bytes::copy_from_slice(&from.to_be_bytes()),
        });
        if end.as_ref().is_some_and(|end| *end <= from) {
            return Ok(());
        }
        for found in ReadableScan::begin(&self.store.table, &from, end.as_deref(), RECORD_WIDTH).map_err(failed)? {
            let (table_key, record) = match found.map_err(failed)? {
                Found::Record(table_key, record) => (table_key, record),
                Found::Damaged(_, error) => return Err(failed(error)),
                Found::Gap(gap) => return Err(failed(gap.error)),
            };
            if let Some((place, _)) = parse_record_key(&table_key)
                && !take(place, table_key, record)?
            {
                break;
            }
        }
        // It may have been deleted meanwhile.
        match self.partition.is_held() && !self.store.is_gone() {
            true => Ok(()),
            false => Err(self.not_here.clone()),
        }
    }

    /// Uses the log.
    fn log<T>(&self, ask: impl FnOnce(&mut ChangeLog) -> T) -> Result<T, ChangesError> {
        self.partition.followed.with(ask).ok_or_else(|| self.not_here.clone())
    }
}

impl ChangePosition {
    /// Whether a record was returned before this position, or is not wanted.
    fn covers(&self, record: &Record) -> bool {
        let siblings = record.siblings();
        let newest = siblings.iter().map(|sibling| sibling.written_unix_ms).max();
        let is_seen = match siblings.is_empty() {
            true => self.seen.covers_all(record.context()),
            false => siblings.iter().all(|sibling| self.seen.covers(sibling.dot)),
        };
        is_seen || newest.is_some_and(|newest| newest < self.since_unix_ms)
    }
}

/// The room that is left in a result.
struct Left {
    count: usize,
    bytes: usize,
}

impl Left {
    fn has_some(&self) -> bool {
        self.count > 0 && self.bytes > 0
    }

    fn take(&mut self, bytes: usize) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
