//! The thread that makes hash trees: at the start, when a partition comes to the node, and when a tree has
//! become too small. It scans at a bounded rate, while requests are answered.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use fondaco_engine::Scan;
use fondaco_model::versioned::{HashTree, Record};

use crate::metrics::ReplicaCounter;
use crate::pace::Pace;
use crate::partition::Partition;
use crate::shared::Shared;
use crate::store::HeldStore;
use crate::table_key::{parse_record_key, range};
use crate::worker::Signal;

/// How often it looks for trees to make when nobody wakes it.
const PERIOD: Duration = Duration::from_secs(1);

/// The bytes that are scanned between two pauses.
const STEP_BYTES: u64 = 1 << 20;

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

/// Makes the tree of a partition. `None` if that failed.
fn grow(
    shared: &Arc<Shared>,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
    pace: &mut Pace,
    signal: &Signal,
) -> Option<()> {
    let shard = shared.shard_of(partition.id());
    let (sender, receiver) = mpsc::sync_channel(1);
    let (table, theirs) = (Arc::clone(&store.table), Arc::clone(partition));
    // On the shard's thread, so that no write is under way.
    shared.between(shard, move || {
        theirs.begin_tree();
        let (from, to) = range(theirs.id(), 0, 0);
        // Likewise if the process ends: nobody receives it.
        drop(sender.send(table.scan(&from, to.as_deref())));
    });
    // Without an answer the shard has ended.
    let scan: Scan = match receiver.recv().ok()? {
        Ok(scan) => scan,
        Err(error) => {
            tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be scanned");
            return None;
        }
    };
    // All partitions are alike, and what was counted before is better.
    let held = store.partitions.len().max(1) as u64;
    let known = partition.with_tree(HashTree::keys);
    let mut tree = HashTree::for_keys(known.unwrap_or(store.table.approximate_len() / held));
    let mut bytes = 0;
    for entry in scan {
        let (table_key, record) = match entry {
            Ok(entry) => entry,
            // It is not there, as far as other replicas are concerned, who then say what they have of it.
            Err(error) if error.damaged_key().is_some() => {
                shared.metrics.add(ReplicaCounter::Corruptions, 1);
                tracing::error!(store = %store.name, partition = %partition.id(), %error, "a stored record is damaged");
                continue;
            }
            Err(error) => {
                tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be scanned");
                return None;
            }
        };
        if let Some((_, hash, _)) = parse_record_key(&table_key) {
            tree.replace(hash, None, Some(Record::digest(&record)));
        }
        bytes += (table_key.len() + record.len()) as u64;
        if bytes >= STEP_BYTES && !pace.spend(std::mem::take(&mut bytes), signal) {
            return None;
        }
    }
    let theirs = Arc::clone(partition);
    let (sender, receiver) = mpsc::sync_channel(1);
    shared.between(shard, move || {
        theirs.end_tree(Some(tree));
        // Nobody receives it if the process ends.
        let _ = sender.send(());
    });
    receiver.recv().ok()
}
