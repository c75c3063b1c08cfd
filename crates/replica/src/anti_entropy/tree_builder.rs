//! The thread that makes hash trees: at the start, when a partition comes to the node, and when a tree has
//! become too small. It scans at a bounded rate, while requests are answered.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{EngineError, Scan};
use fondaco_model::versioned::{HashTree, Record};

use crate::metrics::ReplicaCounter;
use crate::pace::Pace;
use crate::partition::{Partition, UNREADABLE};
use crate::reads::scanning::{RECORD_WIDTH, is_damage, next_readable};
use crate::shared::Shared;
use crate::store::HeldStore;
use crate::table_key::{parse_record_key, range};
use crate::worker::Signal;

/// How often it looks for trees to make when nobody wakes it.
const PERIOD: Duration = Duration::from_secs(1);

/// The bytes that are scanned between two pauses.
const STEP_BYTES: u64 = 1 << 20;

/// In how many parts a partition is read, where others cannot be: what is behind them is not looked at.
const PARTS_MAX: usize = 256;

/// Makes trees until it is told to end.
pub(crate) fn run(shared: &Arc<Shared>, signal: &Signal) {
    let mut pace = Pace::new(shared.options.scan_bytes_per_second);
    loop {
        let holding = shared.holding.load_full();
        for store in holding.stores.values().filter(|store| store.is_compared()) {
            for partition in store.all_partitions() {
                if signal.has_ended() {
                    return;
                }
                if partition.wants_tree()
                    && !store.is_gone()
                    && grow(shared, store, partition, &mut pace, signal).is_none()
                {
                    // It failed, and is tried again after a while.
                    shared.between(shared.shard_of(partition.id()), {
                        let partition = Arc::clone(partition);
                        move || partition.end_tree(None)
                    });
                }
            }
        }
        drop(holding);
        if !signal.sleep(PERIOD) {
            return;
        }
    }
}

/// Makes the tree of a partition, of all of it that can be read. `None` if that failed.
fn grow(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    pace: &mut Pace,
    signal: &Signal,
) -> Option<()> {
    let warn = |error: EngineError| {
        tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be scanned");
    };
    let (begin, end) = range(partition.id(), 0, 0);
    // What is read is as it was when the scans began: behind what cannot be read they do not go on, but begin anew.
    let mut readable = vec![(begin, end.clone())];
    loop {
        let unreadable = match scan(shared, store, partition, &readable, pace, signal)? {
            Scanned::All(tree) => return put(shared, partition, tree),
            Scanned::Unreadable(from, error) => (from, error),
            Scanned::Failed(error) => {
                warn(error);
                return None;
            }
        };
        let (from, error) = unreadable;
        shared.metrics.add(ReplicaCounter::Corruptions, 1);
        tracing::error!(store = %store.name, partition = %partition.id(), %error, "a part of a partition cannot be read");
        let next = match readable.len() < PARTS_MAX {
            true => next_readable(&*store.table, &from, end.as_deref(), RECORD_WIDTH)
                .map_err(warn)
                .ok()?,
            false => None,
        };
        // It was found in the last part, or in one that could be read before.
        readable.retain(|(first, _)| *first < from);
        if let Some((_, last)) = readable.last_mut()
            && last.as_ref().is_none_or(|last| *last > from)
        {
            *last = Some(from);
        }
        readable.extend(next.map(|next| (next, end.clone())));
    }
}

/// What came of scans.
enum Scanned {
    All(HashTree),
    /// From a place on it cannot be read, and the engine does not say how far.
    Unreadable(Bytes, EngineError),
    Failed(EngineError),
}

/// Scans parts of a partition, as they are at one moment. `None` if the process ends.
fn scan(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    parts: &[(Bytes, Option<Bytes>)],
    pace: &mut Pace,
    signal: &Signal,
) -> Option<Scanned> {
    let shard = shared.shard_of(partition.id());
    let (sender, receiver) = mpsc::sync_channel(1);
    let (table, theirs, scanned) = (Arc::clone(&store.table), Arc::clone(partition), parts.to_vec());
    // On the shard's thread, so that no write is under way.
    shared.between(shard, move || {
        theirs.begin_tree();
        let scans = scanned.iter().map(|(from, to)| table.scan(from, to.as_deref()));
        let scans: Result<Vec<Scan>, EngineError> = scans.collect();
        // Likewise if the process ends: nobody receives it.
        drop(sender.send(scans));
    });
    // Without an answer the shard has ended.
    let scans = match receiver.recv().ok()? {
        Ok(scans) => scans,
        Err(error) => return Some(Scanned::Failed(error)),
    };
    // All partitions are alike, and what was counted before is better.
    let held = store.partitions.len().max(1) as u64;
    let known = partition.with_tree(HashTree::keys);
    let mut tree = HashTree::for_keys(known.unwrap_or(store.table.approximate_len() / held));
    let mut bytes = 0;
    for ((first, _), scan) in parts.iter().zip(scans) {
        let mut last: Option<Bytes> = None;
        for entry in scan {
            let (table_key, record) = match entry {
                Ok(entry) => entry,
                Err(error) => match error.damaged_key().map(Bytes::copy_from_slice) {
                    // It is not there, as far as other replicas are concerned, who then say what they have of it.
                    Some(key) => {
                        shared.metrics.add(ReplicaCounter::Corruptions, 1);
                        tracing::error!(
                            store = %store.name, partition = %partition.id(), %error, "a stored record is damaged"
                        );
                        if let Some((_, hash, _)) = parse_record_key(&key) {
                            partition.note_damaged(hash, UNREADABLE);
                        }
                        last = Some(key);
                        continue;
                    }
                    None if is_damage(&error) => {
                        let from = last.map_or(first.clone(), |last| [&last[..], &[0]].concat().into());
                        return Some(Scanned::Unreadable(from, error));
                    }
                    None => return Some(Scanned::Failed(error)),
                },
            };
            if let Some((_, hash, _)) = parse_record_key(&table_key) {
                tree.replace(hash, None, Some(Record::digest(&record)));
            }
            bytes += (table_key.len() + record.len()) as u64;
            if bytes >= STEP_BYTES && !pace.spend(std::mem::take(&mut bytes), signal) {
                return None;
            }
            last = Some(table_key);
        }
    }
    Some(Scanned::All(tree))
}

/// Puts a tree in its place. `None` if the process ends.
fn put(shared: &Arc<Shared>, partition: &Arc<Partition>, tree: HashTree) -> Option<()> {
    let theirs = Arc::clone(partition);
    let (sender, receiver) = mpsc::sync_channel(1);
    shared.between(shared.shard_of(partition.id()), move || {
        theirs.end_tree(Some(tree));
        // Nobody receives it if the process ends.
        let _ = sender.send(());
    });
    receiver.recv().ok()
}
