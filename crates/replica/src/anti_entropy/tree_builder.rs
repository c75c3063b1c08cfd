//! The chore that builds hash trees: at the start, when a partition comes to the node, and when a tree has become too
//! small. It scans at a bounded rate, while requests are answered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_engine::{EngineError, Scan};
use fondaco_model::versioned::{HashTree, Record};

use crate::background::Background;
use crate::metrics::ReplicaCounter;
use crate::partition::{Partition, UNREADABLE};
use crate::reads::is_sound;
use crate::reads::scanning::{RECORD_WIDTH, is_damage, next_readable};
use crate::store::HeldStore;
use crate::table_key::{parse_record_key, range, within};

/// How often it looks for missing trees when it is not woken.
const PERIOD: Duration = Duration::from_secs(1);

/// The bytes that are scanned between two pauses.
const STEP_BYTES: u64 = 1 << 20;

/// Into how many ranges a partition is split around unreadable ones; records behind the last range are not read.
const PARTS_MAX: usize = 256;

/// Builds trees until it is ended.
pub(crate) async fn run(mut background: Background) {
    let background = &mut background;
    let shared = &Arc::clone(&background.shared);
    loop {
        let holding = shared.holding.load_full();
        for store in holding.stores.values().filter(|store| store.is_compared()) {
            for partition in store.all_partitions() {
                if background.has_ended() {
                    return;
                }
                crate::changes::compare(shared, &holding, store, partition);
                if partition.wants_tree() && !store.is_gone() && grow(background, store, partition).await.is_none() {
                    // It failed, and is retried after a while.
                    shared.between(shared.shard_of(partition), {
                        let partition = Arc::clone(partition);
                        move || partition.end_tree(None)
                    });
                }
            }
        }
        drop(holding);
        if !background.sleep(PERIOD).await {
            return;
        }
    }
}

/// Builds the tree of a partition, from all that can be read. `None` if that failed.
async fn grow(background: &mut Background, store: &Arc<HeldStore>, partition: &Arc<Partition>) -> Option<()> {
    let shared = &Arc::clone(&background.shared);
    let warn = |error: EngineError| {
        tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be scanned");
    };
    let (begin, end) = range(partition.count(), partition.id(), 0, 0);
    // A scan shows the table as it was at its beginning. It cannot continue behind an unreadable range; new scans begin
    // there.
    let mut readable = vec![(begin, end.clone())];
    loop {
        let unreadable = match scan(background, store, partition, &readable).await? {
            Scanned::All(tree) => return put(background, partition, tree).await,
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
        // The error was in the last range, or in one that could be read before.
        readable.retain(|(first, _)| *first < from);
        if let Some((_, last)) = readable.last_mut()
            && last.as_ref().is_none_or(|last| *last > from)
        {
            *last = Some(from);
        }
        readable.extend(next.map(|next| (next, end.clone())));
    }
}

/// The result of scans.
enum Scanned {
    All(HashTree),
    /// The table cannot be read from this key on, and the engine does not say how far.
    Unreadable(Bytes, EngineError),
    Failed(EngineError),
}

/// Scans ranges of a partition in one snapshot. `None` if the process ends.
async fn scan(
    background: &mut Background,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    parts: &[(Bytes, Option<Bytes>)],
) -> Option<Scanned> {
    let shared = &Arc::clone(&background.shared);
    let shard = shared.shard_of(partition);
    let (table, theirs, scanned) = (Arc::clone(&store.table), Arc::clone(partition), parts.to_vec());
    // Between two groups, so that no write is in progress.
    let begun = background.between(shard, move || {
        theirs.begin_tree();
        let scans = scanned.iter().map(|(from, to)| table.scan(from, to.as_deref()));
        scans.collect::<Result<Vec<Scan>, EngineError>>()
    });
    let scans = match begun.await? {
        Ok(scans) => scans,
        Err(error) => return Some(Scanned::Failed(error)),
    };
    // All partitions are of similar size, and an earlier count is more precise.
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
                    // It does not count, so that other replicas send their records of it.
                    Some(key) => {
                        shared.metrics.add(ReplicaCounter::Corruptions, 1);
                        tracing::error!(
                            store = %store.name, partition = %partition.id(), %error, "a stored record is damaged"
                        );
                        // A write may have replaced it since the scan began.
                        if let Some((position, _)) = parse_record_key(&key)
                            && partition.note_damaged(position, UNREADABLE)
                            && is_sound(&*store.table, &key)
                        {
                            partition.not_damaged(position);
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
            if let Some((position, _)) = parse_record_key(&table_key) {
                tree.replace(within(partition.count(), position), None, Some(Record::digest(&record)));
            }
            bytes += (table_key.len() + record.len()) as u64;
            if bytes >= STEP_BYTES && !background.spend(std::mem::take(&mut bytes)).await {
                return None;
            }
            last = Some(table_key);
        }
    }
    Some(Scanned::All(tree))
}

/// Installs a tree. `None` if the process ends.
async fn put(background: &Background, partition: &Arc<Partition>, tree: HashTree) -> Option<()> {
    let (shard, theirs) = (background.shared.shard_of(partition), Arc::clone(partition));
    background.between(shard, move || theirs.end_tree(Some(tree))).await
}
