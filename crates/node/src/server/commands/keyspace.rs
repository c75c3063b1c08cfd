//! `RANDOMKEY`, and the keys of a slot: single keys out of what `SCAN` walks through.

use std::sync::Arc;

use fondaco_catalog::Catalog;
use fondaco_format::ScanPosition;
use fondaco_model::{PartitionCount, PartitionId, SLOT_COUNT, Slot, SlotPrefix};
use fondaco_resp::command::CommandId;
use fondaco_resp::{Reply, parse_integer};

use super::scan::{Walk, once_all_know};
use super::{Call, NOT_AN_INTEGER, Refusal};

/// How many keys are listed at a time, to be looked through.
const LISTED_KEYS: usize = 1000;

/// The most partitions that are looked into for a key, of this node or of others.
const LOOKS_MAX: usize = 32;

/// `RANDOMKEY`: the key that comes next from a random place on; null if there is none nearby. Keys behind a gap come
/// more often than others.
pub(super) async fn random_key(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match once_all_know(|| random_of_any(call)).await? {
        Some(key) => reply.bulk(&key),
        None => reply.null(),
    }
    Ok(())
}

async fn random_of_any(call: &Call<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let mut walks = walks(call, &catalog);
    fastrand::shuffle(&mut walks);
    let mut asked = 0;
    let mut looks = 0;
    for (walk, partitions) in walks {
        let start = ScanPosition {
            partition: PartitionId::new(fastrand::u32(..partitions.get())),
            hash: fastrand::u64(..),
        };
        // From the random place to the end, and then from the beginning.
        for from in [start, ScanPosition::START] {
            let mut next = Some(from);
            while let Some(position) = next.filter(|_| looks < LOOKS_MAX) {
                looks += 1;
                let (keys, following) = walk.from(position, 1, &mut asked).await?;
                if let Some(key) = keys.first() {
                    return Ok(Some([walk.store_name().as_str().as_bytes(), b":", key].concat()));
                }
                next = following;
            }
        }
    }
    Ok(None)
}

/// `CLUSTER COUNTKEYSINSLOT` and `CLUSTER GETKEYSINSLOT`: of the keys that this node has, as in Redis. They are not kept
/// by slot, so that the whole partition of the slot is looked through.
pub(super) async fn keys_in_slot(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let number = |at: usize| parse_integer(call.arguments[at]).ok_or(NOT_AN_INTEGER);
    let slot = number(2)?;
    let slot = u32::try_from(slot).ok().filter(|&slot| slot < SLOT_COUNT);
    let slot = slot.and_then(|slot| Slot::new(slot as u16)).ok_or("ERR Invalid slot")?;
    let listed_max = match call.command {
        CommandId::ClusterGetKeysInSlot => usize::try_from(number(3)?).map_err(|_| "ERR Invalid number of keys")?,
        _ => 0,
    };
    let is_counted = call.command == CommandId::ClusterCountKeysInSlot;
    let (found, count) = once_all_know(|| in_slot(call, slot, (is_counted, listed_max))).await?;
    if is_counted {
        reply.integer(count);
    } else {
        reply.array(found.len());
        found.iter().for_each(|key| reply.bulk(key));
    }
    Ok(())
}

/// The keys of a slot, at most this many unless they are counted, and their number.
async fn in_slot(
    call: &Call<'_>,
    slot: Slot,
    (is_counted, listed_max): (bool, usize),
) -> Result<(Vec<Vec<u8>>, i64), Refusal> {
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let (mut found, mut count) = (Vec::new(), 0_i64);
    for (walk, partitions) in walks(call, &catalog) {
        let name = walk.store_name();
        let slots = SlotPrefix::of(name);
        let mut next = Some(ScanPosition {
            partition: partitions.partition_of(slot),
            hash: 0,
        });
        while let Some(position) = next.filter(|_| is_counted || found.len() < listed_max) {
            let Some((keys, following)) = walk.here(position, LISTED_KEYS).await? else {
                break;
            };
            for key in keys.iter().filter(|key| slots.slot(key) == slot) {
                count += 1;
                if found.len() < listed_max {
                    found.push([name.as_str().as_bytes(), b":", key].concat());
                }
            }
            next = following;
        }
    }
    Ok((found, count))
}

/// Walks through the stores that the client may read, and that have keys; with the number of partitions of each.
fn walks<'a>(call: &'a Call<'a>, catalog: &'a Catalog) -> Vec<(Walk<'a>, PartitionCount)> {
    let walk = |store| {
        let has_keys = catalog.current_number(store).is_some() || catalog.versioned(store).is_some();
        let walk = Walk { call, catalog, store };
        let is_readable = has_keys && call.session.may_read(walk.store_name());
        let partitions = walk.partitions().filter(|_| is_readable)?;
        Some((walk, partitions))
    };
    (0..catalog.stores().len() as u16).filter_map(walk).collect()
}
