//! The chore that compares partitions with their other replicas, and deletes those that are no longer held.
//!
//! A partition that the node no longer holds is compared with all of its owners before it is deleted, so that nothing
//! is lost that only this node had.

use std::sync::Arc;
use std::time::Duration;

use fondaco_protocol::replica::{ReplicaError, ReplicaErrorCode};

use crate::anti_entropy::comparing::exchange;
use crate::anti_entropy::schedule::Turns;
use crate::background::Background;
use crate::membership::incarnation::Lasting;
use crate::partition::Partition;
use crate::reads::scanning::{Found, RECORD_WIDTH, ReadableScan};
use crate::shared::Shared;
use crate::store::{Cluster, HeldStore, Holding};
use crate::table_key::{StoreIdentity, range};
use crate::writes::commit::{Task, engine_error};

/// The longest sleep before the schedule is checked again.
const CHECK_PERIOD: Duration = Duration::from_millis(500);

/// How many keys of a partition that is no longer held are deleted at a time.
const CLEAR_KEYS: usize = 1024;

/// Compares partitions until it is ended.
pub(crate) async fn run(mut background: Background) {
    let background = &mut background;
    let shared = &Arc::clone(&background.shared);
    let mut turns = Turns::new(&shared.host, shared.options.exchange_period);
    loop {
        // Read before the losses are: a partition that falls behind meanwhile is not restored yet.
        let falls = shared.incarnation.falls();
        let holding = shared.holding.load_full();
        turns.forget_others(&holding);
        turns.owe(&holding, &shared.take_returned());
        for store in holding.stores.values() {
            for partition in store.partitions.values().filter(|_| store.is_compared()) {
                if background.has_ended() {
                    return;
                }
                if !holding.receives(store, partition.id()) {
                    compare(background, &mut turns, &holding, store, partition).await;
                }
            }
            for partition in store.surplus.iter() {
                give_away(background, &holding, store, partition).await;
            }
        }
        note_if_whole(shared, &holding, falls);
        drop(holding);
        if !background.sleep(CHECK_PERIOD).await {
            return;
        }
    }
}

/// Compares the partitions that move to this node, until it is ended: apart from all others, which must not wait for moves
/// that are held to a low rate.
pub(crate) async fn run_moves(mut background: Background) {
    let background = &mut background;
    let shared = &Arc::clone(&background.shared);
    let mut turns = Turns::new(&shared.host, shared.options.exchange_period);
    loop {
        let holding = shared.holding.load_full();
        turns.forget_others(&holding);
        for store in holding.stores.values().filter(|store| store.is_compared()) {
            for partition in store.partitions.values() {
                if background.has_ended() {
                    return;
                }
                if holding.receives(store, partition.id()) {
                    compare(background, &mut turns, &holding, store, partition).await;
                }
            }
        }
        drop(holding);
        if !background.sleep(CHECK_PERIOD).await {
            return;
        }
    }
}

/// Compares a partition with the nodes whose turn it is.
async fn compare(
    background: &mut Background,
    turns: &mut Turns,
    holding: &Holding,
    store: &HeldStore,
    partition: &Partition,
) {
    for peer in turns.whose(holding, store, partition) {
        let outcome = exchange(background, store, partition, peer).await;
        turns.had(holding, store, partition, peer, outcome.is_ok());
    }
    let is_lost = background.shared.is_lost(store);
    if partition.is_behind() && holding.has_caught_up(store, partition, is_lost) {
        partition.caught_up();
        tracing::info!(store = %store.name, partition = %partition.id(), "lost data is restored");
    }
}

/// Once all lost data is restored, the next start need not compare partitions first.
fn note_if_whole(shared: &Shared, holding: &Holding, falls: u64) {
    let is_held = |store: &StoreIdentity| holding.store_of(*store).is_some();
    let is_certain = |cluster: &Cluster| !cluster.is_remembered && cluster.stores.iter().all(is_held);
    let durable = holding
        .stores
        .values()
        .filter(|store| store.lasting() == Lasting::Durable);
    let is_whole = || {
        durable
            .flat_map(|store| store.partitions.values())
            .all(|partition| !partition.is_behind())
    };
    if !shared.incarnation.is_behind() && !shared.incarnation.has_lost()
        || !holding.cluster.as_ref().is_some_and(is_certain)
        || !is_whole()
    {
        return;
    }
    if let Err(error) = shared.incarnation.caught_up(falls) {
        tracing::warn!(%error, "the next start compares all partitions before it answers reads");
    }
}

/// Makes sure that the owners of a partition that is no longer held have all its records, and deletes it.
async fn give_away(background: &mut Background, holding: &Holding, store: &Arc<HeldStore>, partition: &Arc<Partition>) {
    // While the partition moves, the move may be cancelled; a remembered cluster state may be old.
    let is_certain = holding
        .cluster
        .as_ref()
        .is_some_and(|cluster| cluster.table.joint(partition.id()).is_none() && !cluster.is_remembered);
    if !is_certain || partition.is_cleared() || partition.is_held() {
        return;
    }
    // Writes that were admitted before are in the table from here on.
    let shard = background.shared.shard_of(partition);
    if background.between(shard, || ()).await.is_none() {
        return;
    }
    for &owner in holding.owners(store, partition.id()) {
        if !store.is_compared() || partition.exchanged_with(owner).is_some() {
            continue;
        }
        if !holding.is_live(owner) || exchange(background, store, partition, owner).await.is_err() {
            return;
        }
    }
    match clear(background, store, partition).await {
        Ok(()) => {
            partition.cleared();
            tracing::info!(store = %store.name, partition = %partition.id(), "deleted: other nodes own it");
        }
        Err(error) => {
            tracing::warn!(store = %store.name, partition = %partition.id(), %error, "cannot be deleted yet");
        }
    }
}

async fn clear(
    background: &mut Background,
    store: &Arc<HeldStore>,
    partition: &Arc<Partition>,
) -> Result<(), ReplicaError> {
    let shared = &Arc::clone(&background.shared);
    let failed = |error| engine_error(shared, &error);
    let (from, to) = range(partition.count(), partition.id(), 0, 0);
    loop {
        // Once it is held again, nothing of it is deleted; its parts after a split are.
        if partition.is_held() || partition.is_split() {
            let message = "this node holds it again, or it was split";
            return Err(ReplicaError::new(ReplicaErrorCode::Other, message));
        }
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let scan = ReadableScan::begin(&store.table, &from, to.as_deref(), RECORD_WIDTH).map_err(failed)?;
        for found in scan.take(CLEAR_KEYS) {
            match found.map_err(failed)? {
                Found::Record(key, record) => {
                    bytes += (key.len() + record.len()) as u64;
                    keys.push(key);
                }
                Found::Damaged(key, _) => keys.push(key),
                // It stays in the table, and counts as damaged if the partition comes back.
                Found::Gap(gap) => tracing::error!(
                    store = %store.name, partition = %partition.id(), error = %gap.error,
                    "a part of a partition cannot be read, and is not deleted"
                ),
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let task = Task::Clear(Arc::clone(partition), keys);
        let shard = shared.shard_of(partition);
        background.commit(shard, Some(store), task).await?;
        if !background.spend(bytes).await {
            return Err(ReplicaError::new(
                ReplicaErrorCode::Other,
                "this process is shutting down",
            ));
        }
    }
}
