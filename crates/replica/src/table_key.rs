//! Keys of tables, under which records are stored.
//!
//! ```text
//! a store's table    partition (u16) ++ hash of the key (u64) ++ key          → record
//! the hints' table   node (u32) ++ store (u16) ++ created (u64) ++ partition (u16) ++ hash (u64) ++ key → record
//! ```
//!
//! All numbers are big-endian, so that a partition, and within it any node of its hash tree, is one range of keys; and
//! so are the hints for one node.

use bytes::{BufMut, Bytes, BytesMut};
use fondaco_engine::KEY_BYTES_MAX as TABLE_KEY_BYTES_MAX;
use fondaco_model::{NodeId, PartitionId};
use smallvec::SmallVec;

/// The length of the prefix before the key in a store's table.
pub(crate) const PREFIX_BYTES: usize = 2 + 8;

/// The length of the prefix before that in the table of hints.
pub(crate) const HINT_BYTES: usize = 4 + 2 + 8;

/// The longest key of a versioned store, in bytes: it fits into both tables.
pub const REPLICA_KEY_BYTES_MAX: usize = TABLE_KEY_BYTES_MAX - PREFIX_BYTES - HINT_BYTES;

/// The hash of a key, without regard to its store.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The key of a record in its store's table.
pub(crate) fn record_key(partition: PartitionId, hash: u64, key: &[u8]) -> Bytes {
    record_key_before(partition, hash, key, 0).into()
}

/// The same, in a buffer with room for so many more bytes.
pub(crate) fn record_key_before(partition: PartitionId, hash: u64, key: &[u8], more_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + key.len() + more_bytes);
    put_prefix(&mut bytes, partition, hash);
    bytes.put_slice(key);
    bytes
}

/// The keys of several records in their store's table, concatenated in one buffer. Nothing is allocated if they are few
/// and short.
#[derive(Default)]
pub(crate) struct JoinedKeys {
    bytes: SmallVec<[u8; 1024]>,
    ends: SmallVec<[usize; 32]>,
}

impl JoinedKeys {
    pub(crate) fn push(&mut self, partition: PartitionId, hash: u64, key: &[u8]) {
        let mut prefix = [0; PREFIX_BYTES];
        put_prefix(&mut &mut prefix[..], partition, hash);
        self.bytes.extend_from_slice(&prefix);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// The keys, in order.
    pub(crate) fn keys(&self) -> SmallVec<[&[u8]; 32]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.bytes[start..end])
            .collect()
    }
}

/// Runs `look` with the key of a record in its store's table; without allocating if the key is short.
pub(crate) fn with_record_key<T>(partition: PartitionId, hash: u64, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> T {
    const SHORT_BYTES: usize = 64;
    let mut short = [0; PREFIX_BYTES + SHORT_BYTES];
    let Some(short) = short.get_mut(..PREFIX_BYTES + key.len()) else {
        return look(&record_key(partition, hash, key));
    };
    put_prefix(&mut &mut *short, partition, hash);
    short[PREFIX_BYTES..].copy_from_slice(key);
    look(short)
}

/// The partition, the hash and the key from a key of a store's table; `None` if it has another form.
pub(crate) fn parse_record_key(table_key: &Bytes) -> Option<(PartitionId, u64, Bytes)> {
    let (partition, rest) = table_key.split_first_chunk::<2>()?;
    let (hash, _) = rest.split_first_chunk::<8>()?;
    let partition = PartitionId::new(u16::from_be_bytes(*partition).into());
    Some((partition, u64::from_be_bytes(*hash), table_key.slice(PREFIX_BYTES..)))
}

/// The range of the keys of a partition whose hashes begin with these `bits` bits. It has no end if it is the last one;
/// it is empty if `first_bits` has more bits than that.
pub(crate) fn range(partition: PartitionId, bits: u32, first_bits: u64) -> (Bytes, Option<Bytes>) {
    let bound = |at: u64| match bits {
        0 if at == 0 => partition_bound(partition.get()),
        0..64 if at >> bits != 0 => partition_bound(partition.get() + 1),
        _ => {
            let mut bytes = BytesMut::with_capacity(PREFIX_BYTES);
            put_prefix(&mut bytes, partition, at << (64 - bits));
            Some(bytes.freeze())
        }
    };
    let after = match first_bits.checked_add(1) {
        Some(after) => bound(after),
        None => partition_bound(partition.get() + 1),
    };
    (bound(first_bits).unwrap_or_default(), after)
}

/// Where a partition begins; `None` after the last possible one.
fn partition_bound(partition: u32) -> Option<Bytes> {
    let number = u16::try_from(partition).ok()?;
    Some(Bytes::copy_from_slice(&number.to_be_bytes()))
}

fn put_prefix(bytes: &mut impl BufMut, partition: PartitionId, hash: u64) {
    // There are at most as many partitions as slots.
    bytes.put_u16(partition.get() as u16);
    bytes.put_u64(hash);
}

/// The identity of a store: a later store may reuse the number of a dropped one, but not its creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoreIdentity {
    pub(crate) id: u16,
    pub(crate) created_unix_ms: u64,
}

/// The key of a hint: a record of a store that waits for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HintKey {
    pub(crate) node: NodeId,
    pub(crate) store: StoreIdentity,
    /// The partition of the key.
    pub(crate) partition: PartitionId,
    pub(crate) key: Bytes,
}

/// The key of a hint in the table of hints.
pub(crate) fn hint_key(node: NodeId, store: StoreIdentity, partition: PartitionId, key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HINT_BYTES + PREFIX_BYTES + key.len());
    put_hint_prefix(&mut bytes, node, store);
    put_prefix(&mut bytes, partition, key_hash(key));
    bytes.put_slice(key);
    bytes.freeze()
}

/// Parses a key of the table of hints; `None` if it has another form.
pub(crate) fn parse_hint_key(table_key: &Bytes) -> Option<HintKey> {
    let (node, rest) = table_key.split_first_chunk::<4>()?;
    let (id, rest) = rest.split_first_chunk::<2>()?;
    let (created_unix_ms, rest) = rest.split_first_chunk::<8>()?;
    let (partition, rest) = rest.split_first_chunk::<2>()?;
    rest.split_first_chunk::<8>()?;
    Some(HintKey {
        node: NodeId::new(u32::from_be_bytes(*node))?,
        store: StoreIdentity {
            id: u16::from_be_bytes(*id),
            created_unix_ms: u64::from_be_bytes(*created_unix_ms),
        },
        partition: PartitionId::new(u16::from_be_bytes(*partition).into()),
        key: table_key.slice(HINT_BYTES + PREFIX_BYTES..),
    })
}

/// The range of the hints for a node.
pub(crate) fn hints_of(node: NodeId) -> (Bytes, Option<Bytes>) {
    let bound = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
    (bound(node.get()), node.get().checked_add(1).map(bound))
}

/// The range of the hints for a node of one store.
pub(crate) fn hints_of_store(node: NodeId, store: StoreIdentity) -> (Bytes, Option<Bytes>) {
    let mut first = BytesMut::with_capacity(HINT_BYTES);
    put_hint_prefix(&mut first, node, store);
    // Increments the last byte that can be incremented, and ends there.
    let last = first.iter().rposition(|byte| *byte < u8::MAX);
    let end = last.map(|last| {
        let mut end = BytesMut::from(&first[..=last]);
        end[last] += 1;
        end.freeze()
    });
    (first.freeze(), end)
}

fn put_hint_prefix(bytes: &mut BytesMut, node: NodeId, store: StoreIdentity) {
    bytes.put_u32(node.get());
    bytes.put_u16(store.id);
    bytes.put_u64(store.created_unix_ms);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_is_only_in_the_range_of_its_hash(
            partition in 0..16384u32, bits in prop_oneof![0..20u32, Just(64)], key in prop::collection::vec(any::<u8>(), 1..100), off in 0..64u64,
        ) {
            let partition = PartitionId::new(partition);
            let hash = key_hash(&key);
            let stored = record_key(partition, hash, &key);
            let own = hash.checked_shr(64 - bits).unwrap_or(0);
            let asked = (own ^ off) & 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
            let (from, to) = range(partition, bits, asked);
            let inside = stored >= from && to.is_none_or(|to| stored < to);
            prop_assert_eq!(inside, asked == own);
            with_record_key(partition, hash, &key, |looked_for| assert_eq!(looked_for, stored));
            prop_assert_eq!(parse_record_key(&stored), Some((partition, hash, Bytes::from(key))));
        }

        #[test]
        fn hints_are_in_the_range_of_their_node(node in 1..u32::MAX, other in 1..u32::MAX, key in prop::collection::vec(any::<u8>(), 1..40)) {
            let (node, other) = (NodeId::new(node).unwrap(), NodeId::new(other).unwrap());
            let partition = PartitionId::new(3);
            let identity = |(id, created_unix_ms)| StoreIdentity { id, created_unix_ms };
            let stores = [(6, 9), (7, 8), (7, 9), (7, 10), (7, u64::MAX), (8, 9), (u16::MAX, u64::MAX)].map(identity);
            for store in stores {
                let stored = hint_key(node, store, partition, &key);
                let parsed = parse_hint_key(&stored).unwrap();
                prop_assert_eq!(parsed, HintKey { node, store, partition, key: Bytes::from(key.clone()) });
                let (from, to) = hints_of(other);
                prop_assert_eq!(stored >= from && to.is_none_or(|to| stored < to), node == other);
                for asked in stores {
                    let (from, to) = hints_of_store(node, asked);
                    prop_assert_eq!(stored >= from && to.is_none_or(|to| stored < to), store == asked);
                }
            }
        }
    }

    #[test]
    fn impossible_tree_nodes_have_empty_ranges() {
        for (bits, node) in [(0, 1), (0, u64::from(u32::MAX)), (4, 16), (28, u64::from(u32::MAX))] {
            let (from, to) = range(PartitionId::new(7), bits, node);
            assert_eq!(Some(from), to, "{node} of {bits} bits");
        }
    }

    #[test]
    fn the_longest_key_fits_into_both_tables() {
        let key = vec![0; REPLICA_KEY_BYTES_MAX];
        let node = NodeId::FIRST;
        let store = StoreIdentity {
            id: 1,
            created_unix_ms: 1,
        };
        assert!(hint_key(node, store, PartitionId::new(0), &key).len() <= TABLE_KEY_BYTES_MAX);
        assert!(record_key(PartitionId::new(0), 0, &key).len() <= TABLE_KEY_BYTES_MAX);
    }

    #[test]
    fn malformed_table_keys_are_rejected() {
        assert_eq!(parse_record_key(&Bytes::from_static(b"123456789")), None);
        assert_eq!(parse_hint_key(&Bytes::from_static(b"\0\0\0\x01")), None);
        assert_eq!(parse_hint_key(&Bytes::from_static(&[0; 40])), None);
    }
}
