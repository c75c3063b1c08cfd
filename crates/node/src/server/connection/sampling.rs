//! Looks at one request of many: the keys that it names, their partitions, and how long their values are.

use bytes::Bytes;
use fondaco_catalog::{Catalog, NOT_OPEN};
use fondaco_format::Lookup;
use fondaco_metrics::Asked;
use fondaco_model::{PartitionId, SlotPrefix};
use fondaco_protocol::replica::{ReplicaOperation, ReplicaRequest};
use fondaco_resp::Arguments;
use fondaco_resp::command::{CommandId, CommandSpec, Flags};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use super::requests::Taking;
use crate::server::queue::replica_command;

/// How many keys of a request are looked at.
const KEYS_MAX: usize = 256;

/// The places of the keys of a `FONDACO.READ`.
const READ_STORE: usize = 4;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Counts the next request, which is one of many, for all of them.
    #[cold]
    pub(super) fn sample(&self, spec: &CommandSpec, bytes: usize, taking: &Taking<'_>) {
        let catalog = taking.catalog;
        let (metrics, rest) = (&self.context.metrics, &self.input[self.consumed..]);
        if let Some(command) = replica_command(spec.id) {
            let arguments = self.arguments.iter(rest).skip(1).map(Bytes::copy_from_slice);
            let request = ReplicaRequest::parse(command, arguments).ok();
            let keys = request.as_ref().map(keys_of).unwrap_or_default();
            let store = request.as_ref().and_then(|request| catalog.store(&request.store));
            let is_write = !matches!(
                request.as_ref().map(|request| &request.operation),
                Some(ReplicaOperation::Get { .. } | ReplicaOperation::GetOther { .. })
            );
            let each = bytes as u64 / keys.len().max(1) as u64;
            let asked = keys.iter().take(KEYS_MAX).filter_map(|key| {
                let store = store?;
                Some(Asked {
                    store: store.id,
                    partition: partition(catalog, SlotPrefix::of(&store.name), key),
                    key,
                    is_write,
                    bytes: each,
                })
            });
            metrics.count_load(asked, taking.began);
            return;
        }
        let is_write = spec.flags.contains(Flags::WRITE);
        let keys = keys(spec, &self.arguments, rest);
        let asked = keys.take(KEYS_MAX).filter_map(|(name, key)| {
            let place = catalog.store_on_wire(name)?;
            let store = &catalog.stores()[usize::from(place)];
            Some(Asked {
                store: store.id,
                partition: partition(catalog, SlotPrefix::of(&store.name), key),
                key,
                is_write,
                bytes: match is_write {
                    true => bytes as u64,
                    false => value_bytes(catalog, place, key),
                },
            })
        });
        metrics.count_load(asked, taking.began);
    }
}

/// The keys that a request names: for each the name of its store, and the key in it.
fn keys<'a>(
    spec: &CommandSpec,
    arguments: &'a Arguments,
    buffer: &'a [u8],
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
    let is_read = spec.id == CommandId::FondacoRead;
    let first = if is_read { READ_STORE + 1 } else { arguments.len() };
    let pinned = (first..arguments.len()).filter_map(move |at| {
        let name = arguments.get(READ_STORE, buffer)?;
        Some((name, arguments.get(at, buffer)?))
    });
    let places = if is_read { 0 } else { arguments.len() };
    let wire_keys = spec.key_places(places).filter_map(|at| arguments.get(at, buffer));
    let named = wire_keys.filter_map(|wire_key| {
        let colon = memchr::memchr(b':', wire_key)?;
        Some((&wire_key[..colon], &wire_key[colon + 1..]))
    });
    pinned.chain(named)
}

/// The keys that another coordinator asks this node's replica for.
fn keys_of(request: &ReplicaRequest) -> Vec<Bytes> {
    match &request.operation {
        ReplicaOperation::Get { keys, .. } => keys.clone(),
        ReplicaOperation::GetOther { keys } => keys.iter().map(|known| known.key.clone()).collect(),
        ReplicaOperation::Put { key, .. } => vec![key.clone()],
        ReplicaOperation::Merge { records } => records.iter().map(|record| record.key.clone()).collect(),
        // Upkeep is no load of the partition.
        ReplicaOperation::Hint { .. }
        | ReplicaOperation::Tree { .. }
        | ReplicaOperation::Sync { .. }
        | ReplicaOperation::OldestHint => Vec::new(),
    }
}

fn partition(catalog: &Catalog, slots: SlotPrefix, key: &[u8]) -> PartitionId {
    match catalog.membership() {
        Some(membership) => membership.topology().partitions.partition_of(slots.slot(key)),
        None => PartitionId::new(0),
    }
}

/// The length of a value of a batch store that is in memory here; of another one, the mean of its version's; 0 if
/// nothing is known.
fn value_bytes(catalog: &Catalog, store: u16, key: &[u8]) -> u64 {
    let place = catalog.current(store);
    if place == NOT_OPEN {
        return 0;
    }
    let version = catalog.version(place);
    let probe = version.probe(key);
    match version.lookup(&probe, key) {
        Ok(Lookup::Found(value)) => value.len() as u64,
        Ok(Lookup::Absent) | Err(_) => 0,
        Ok(Lookup::Cold(_)) => version.files_bytes() / version.records().max(1),
    }
}
