//! Keys of tables, under which records are stored.
//!
//! ```text
//! a store's table    position (u64) ++ key                                                  → record
//! the hints' table   node (u32) ++ store (u16) ++ created (u64) ++ position (u64) ++ key    → record
//! ```
//!
//! The position of a key is its slot (14 bits) and the first 50 bits of its hash. All numbers are big-endian. So a
//! partition is one range of keys however many partitions there are, and within it any node of its hash tree; and so are
//! the hints for one node. When partitions are split, no record moves.

use bytes::{BufMut, Bytes, BytesMut};
use fondaco_engine::KEY_BYTES_MAX as TABLE_KEY_BYTES_MAX;
pub(crate) use fondaco_model::member::position;
use fondaco_model::{NodeId, PartitionCount, PartitionId, SLOT_BITS, Slot, member};
use smallvec::SmallVec;

/// The length of the prefix before the key in a store's table.
pub(crate) const PREFIX_BYTES: usize = 8;

/// The length of the prefix before that in the table of hints.
pub(crate) const HINT_BYTES: usize = 4 + 2 + 8;

/// The longest key of a versioned store, in bytes: it fits into both tables.
pub const REPLICA_KEY_BYTES_MAX: usize = TABLE_KEY_BYTES_MAX - PREFIX_BYTES - HINT_BYTES;

/// The partition of a position.
#[inline]
pub(crate) fn partition_at(count: PartitionCount, position: u64) -> PartitionId {
    PartitionId::new(position.checked_shr(64 - count.bits()).unwrap_or(0) as u32)
}

/// A position within its partition: the bits that tell its keys apart, first.
#[inline]
pub(crate) fn within(count: PartitionCount, position: u64) -> u64 {
    position << count.bits()
}

/// The position of a key within its partition of this many, given its slot and its hash: its first bits select the nodes of
/// the partition's hash tree that it is below.
pub fn tree_position(partitions: PartitionCount, slot: Slot, hash: u64) -> u64 {
    within(partitions, position(slot, hash))
}

/// The key of a record in its store's table.
pub(crate) fn record_key(position: u64, key: &[u8]) -> Bytes {
    record_key_before(position, key, 0).into()
}

/// The same, in a buffer with room for this many more bytes.
pub(crate) fn record_key_before(position: u64, key: &[u8], more_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + key.len() + more_bytes);
    bytes.put_u64(position);
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
    pub(crate) fn push(&mut self, position: u64, key: &[u8]) {
        self.bytes.extend_from_slice(&position.to_be_bytes());
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
pub(crate) fn with_record_key<T>(position: u64, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> T {
    const SHORT_BYTES: usize = 64;
    let mut short = [0; PREFIX_BYTES + SHORT_BYTES];
    let Some(short) = short.get_mut(..PREFIX_BYTES + key.len()) else {
        return look(&record_key(position, key));
    };
    short[..PREFIX_BYTES].copy_from_slice(&position.to_be_bytes());
    short[PREFIX_BYTES..].copy_from_slice(key);
    look(short)
}

/// The position and the key from a key of a store's table; `None` if it has another form.
pub(crate) fn parse_record_key(table_key: &Bytes) -> Option<(u64, Bytes)> {
    let (position, _) = table_key.split_first_chunk::<PREFIX_BYTES>()?;
    Some((u64::from_be_bytes(*position), table_key.slice(PREFIX_BYTES..)))
}

/// The range of the keys of a partition whose positions within it begin with these `bits` bits. It has no end if it is
/// the last one; it is empty if `first_bits` has more bits than that.
pub(crate) fn range(
    count: PartitionCount,
    partition: PartitionId,
    bits: u32,
    first_bits: u64,
) -> (Bytes, Option<Bytes>) {
    let partition = u64::from(partition.get());
    if first_bits.checked_shr(bits).unwrap_or(0) != 0 {
        let nothing = beginning_with(partition, count.bits()).0;
        return (nothing.clone(), Some(nothing));
    }
    // Of a deeper node than there are bits, the first ones count.
    let shown = bits.min(64 - count.bits());
    let first_bits = first_bits >> (bits - shown);
    beginning_with(
        partition.checked_shl(shown).unwrap_or(0) | first_bits,
        count.bits() + shown,
    )
}

/// The range of the keys of a set's members, given its slot and its key.
pub(crate) fn range_of_set(slot: Slot, set: &[u8]) -> (Bytes, Option<Bytes>) {
    let bits = SLOT_BITS + member::SET_BITS;
    let first = position(slot, member::set_bits(set) << (64 - member::SET_BITS));
    beginning_with(first >> (64 - bits), bits)
}

/// The range of the keys whose positions begin with these bits.
fn beginning_with(first_bits: u64, bits: u32) -> (Bytes, Option<Bytes>) {
    let bound = |at: u64| match at.checked_shl(64 - bits) {
        _ if bits < 64 && at >> bits != 0 => None,
        position => Some(Bytes::copy_from_slice(&position.unwrap_or(0).to_be_bytes())),
    };
    let first = match first_bits {
        0 => Bytes::new(),
        _ => bound(first_bits).unwrap_or_default(),
    };
    (first, first_bits.checked_add(1).and_then(bound))
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
    /// The position of the key in its store.
    pub(crate) position: u64,
    pub(crate) key: Bytes,
}

/// The key of a hint in the table of hints.
pub(crate) fn hint_key(node: NodeId, store: StoreIdentity, position: u64, key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HINT_BYTES + PREFIX_BYTES + key.len());
    put_hint_prefix(&mut bytes, node, store);
    bytes.put_u64(position);
    bytes.put_slice(key);
    bytes.freeze()
}

/// Parses a key of the table of hints; `None` if it has another form.
pub(crate) fn parse_hint_key(table_key: &Bytes) -> Option<HintKey> {
    let (node, rest) = table_key.split_first_chunk::<4>()?;
    let (id, rest) = rest.split_first_chunk::<2>()?;
    let (created_unix_ms, rest) = rest.split_first_chunk::<8>()?;
    let (position, _) = rest.split_first_chunk::<PREFIX_BYTES>()?;
    Some(HintKey {
        node: NodeId::new(u32::from_be_bytes(*node))?,
        store: StoreIdentity {
            id: u16::from_be_bytes(*id),
            created_unix_ms: u64::from_be_bytes(*created_unix_ms),
        },
        position: u64::from_be_bytes(*position),
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

    fn count(bits: u32) -> PartitionCount {
        PartitionCount::try_from(1 << bits).unwrap()
    }

    proptest! {
        #[test]
        fn a_key_is_only_in_the_range_of_its_position(
            count_bits in 0..=14u32, slot in 0..16384u32, bits in prop_oneof![0..20u32, Just(64)],
            hash in any::<u64>(), key in prop::collection::vec(any::<u8>(), 1..100), off in 0..64u64,
        ) {
            let count = count(count_bits);
            let slot = Slot::new(slot as u16).unwrap();
            let position = position(slot, hash);
            let partition = partition_at(count, position);
            prop_assert_eq!(partition, count.partition_of(slot));
            let stored = record_key(position, &key);
            let own = within(count, position).checked_shr(64 - bits).unwrap_or(0);
            let asked = (own ^ off) & 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
            let (from, to) = range(count, partition, bits, asked);
            let inside = stored >= from && to.is_none_or(|to| stored < to);
            // The last bits are those of the partition, which are shifted out.
            let is_same = if bits == 64 { asked >> count_bits == own >> count_bits } else { asked == own };
            prop_assert_eq!(inside, is_same);
            with_record_key(position, &key, |looked_for| assert_eq!(looked_for, stored));
            prop_assert_eq!(parse_record_key(&stored), Some((position, Bytes::from(key))));
        }

        #[test]
        fn halves_of_a_partition_are_the_partitions_after_a_split(count_bits in 0..14u32, slot in 0..16384u32, hash in any::<u64>()) {
            let (before, after) = (count(count_bits), count(count_bits + 1));
            let position = position(Slot::new(slot as u16).unwrap(), hash);
            let (parent, child) = (partition_at(before, position), partition_at(after, position));
            prop_assert_eq!(child.get() >> 1, parent.get());
            prop_assert_eq!(range(before, parent, 1, u64::from(child.get() & 1)), range(after, child, 0, 0));
        }

        #[test]
        fn hints_are_in_the_range_of_their_node(node in 1..u32::MAX, other in 1..u32::MAX, key in prop::collection::vec(any::<u8>(), 1..40)) {
            let (node, other) = (NodeId::new(node).unwrap(), NodeId::new(other).unwrap());
            let identity = |(id, created_unix_ms)| StoreIdentity { id, created_unix_ms };
            let stores = [(6, 9), (7, 8), (7, 9), (7, 10), (7, u64::MAX), (8, 9), (u16::MAX, u64::MAX)].map(identity);
            for store in stores {
                let stored = hint_key(node, store, 3, &key);
                let parsed = parse_hint_key(&stored).unwrap();
                prop_assert_eq!(parsed, HintKey { node, store, position: 3, key: Bytes::from(key.clone()) });
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
            let (from, to) = range(count(4), PartitionId::new(7), bits, node);
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
        assert!(hint_key(node, store, 0, &key).len() <= TABLE_KEY_BYTES_MAX);
        assert!(record_key(0, &key).len() <= TABLE_KEY_BYTES_MAX);
    }

    #[test]
    fn malformed_table_keys_are_rejected() {
        assert_eq!(parse_record_key(&Bytes::from_static(b"1234567")), None);
        assert_eq!(parse_hint_key(&Bytes::from_static(b"\0\0\0\x01")), None);
        assert_eq!(parse_hint_key(&Bytes::from_static(&[0; 40])), None);
    }
}
