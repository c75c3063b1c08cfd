//! A hash tree (Merkle 1987) over the records of one partition: two replicas compare theirs from the root down, and so
//! find the differences with few messages.
//!
//! A leaf is the range of keys whose hashes begin with the same bits. Its hash is the XOR of the hashes of its records,
//! so that each write updates it with one operation, in any order. The hash of any higher node is the XOR of the leaves
//! under it, at any depth: trees of different depth can be compared down to the leaves of the shallower one. Higher
//! nodes are computed on request, which costs less than keeping them.
//!
//! It cannot split a leaf, since it does not know the keys: a tree that has become [crowded](HashTree::is_crowded) is
//! rebuilt with more leaves, by a scan.

/// The minimum number of hash bits that select a leaf: the root has at least 16 children.
pub const LEAF_BITS_MIN: u8 = 4;

/// The maximum number of hash bits that select a leaf.
pub const LEAF_BITS_MAX: u8 = 24;

/// How many keys a leaf may have, on average.
pub const LEAF_KEYS_MAX: u64 = 16;

/// The hashes of a partition's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashTree {
    leaf_bits: u8,
    leaves: Box<[u64]>,
    keys: u64,
}

impl Default for HashTree {
    /// The tree of an empty partition.
    fn default() -> Self {
        Self::for_keys(0)
    }
}

impl HashTree {
    /// An empty tree for this number of keys, and for up to twice as many.
    pub fn for_keys(keys: u64) -> Self {
        let leaves = (keys / (LEAF_KEYS_MAX / 2)).max(1).next_power_of_two();
        let leaf_bits = (leaves.ilog2() as u8).clamp(LEAF_BITS_MIN, LEAF_BITS_MAX);
        Self {
            leaf_bits,
            leaves: vec![0; 1 << leaf_bits].into(),
            keys: 0,
        }
    }

    /// How many bits of a key's hash select its leaf.
    pub fn leaf_bits(&self) -> u8 {
        self.leaf_bits
    }

    /// How many keys have a record.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Whether its leaves have too many keys: it still works, but comparisons cost more than they should.
    pub fn is_crowded(&self) -> bool {
        self.leaf_bits < LEAF_BITS_MAX && self.keys > LEAF_KEYS_MAX << self.leaf_bits
    }

    /// Records that a key's record has changed from one with digest `before`, if any, to one with digest `after`, if
    /// any.
    pub fn replace(&mut self, key_hash: u64, before: Option<u64>, after: Option<u64>) {
        let leaf = &mut self.leaves[(key_hash >> (64 - self.leaf_bits)) as usize];
        for digest in [before, after].into_iter().flatten() {
            *leaf ^= record_hash(key_hash, digest);
        }
        self.keys = (self.keys + u64::from(after.is_some())).saturating_sub(u64::from(before.is_some()));
    }

    /// The hash of the whole partition.
    pub fn root(&self) -> u64 {
        xor(&self.leaves)
    }

    /// The hashes of the 16 nodes below a node: `node` is the number formed by the first `bits` of its keys' hashes,
    /// and the next four bits select the child. `None` if the node does not exist, or has no leaves four bits below.
    pub fn children(&self, bits: u8, node: u32) -> Option<[u64; 16]> {
        let is_there = bits <= self.leaf_bits - 4 && u64::from(node) >> bits == 0;
        if !is_there {
            return None;
        }
        let width = 1 << (self.leaf_bits - bits);
        let leaves = &self.leaves[node as usize * width..][..width];
        let mut children = [0; 16];
        for (child, leaves) in children.iter_mut().zip(leaves.chunks_exact(width / 16)) {
            *child = xor(leaves);
        }
        Some(children)
    }
}

fn xor(hashes: &[u64]) -> u64 {
    hashes.iter().fold(0, |all, hash| all ^ hash)
}

/// The contribution of a record to the hash of every node above it: a node's hash is their XOR. Key and digest are
/// mixed (splitmix64, Steele, Lea and Flood 2014): otherwise two keys with swapped records would cancel out.
pub fn record_hash(key_hash: u64, digest: u64) -> u64 {
    let mix = |mut bits: u64| {
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    };
    mix(mix(key_hash.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(digest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn tree_of(records: &BTreeMap<u64, u64>, room: u64) -> HashTree {
        let mut tree = HashTree::for_keys(room);
        for (&hash, &digest) in records {
            tree.replace(hash, None, Some(digest));
        }
        tree
    }

    /// The leaves of the shallower tree in which two trees differ, found from the root down, and how many nodes were
    /// compared.
    fn differing(a: &HashTree, b: &HashTree) -> (Vec<u32>, usize) {
        let leaf_bits = a.leaf_bits().min(b.leaf_bits());
        let (mut bits, mut nodes, mut compared) = (0, vec![0], 0);
        while !nodes.is_empty() {
            let mut below = Vec::new();
            for node in nodes {
                let (a, b) = (a.children(bits, node).unwrap(), b.children(bits, node).unwrap());
                compared += 1;
                below.extend((0..16).filter(|&at| a[at] != b[at]).map(|at| node << 4 | at as u32));
            }
            bits += 4;
            if bits == leaf_bits {
                return (below, compared);
            }
            // The last step overlaps the one before, so that it ends at the leaves.
            let next = bits.min(leaf_bits - 4);
            nodes = below.into_iter().map(|node| node >> (bits - next)).collect();
            nodes.dedup();
            bits = next;
        }
        (Vec::new(), compared)
    }

    /// Keys with hashes all over the range, each with a digest.
    fn records() -> impl Strategy<Value = BTreeMap<u64, u64>> {
        prop::collection::btree_map(any::<u64>(), 0..4u64, 0..300)
    }

    proptest! {
        #[test]
        fn an_updated_tree_equals_a_rebuilt_one(
            changes in prop::collection::vec((0..50u64, prop::option::of(any::<u64>())), 0..200),
            room in 0..5000u64,
        ) {
            let mut records = BTreeMap::new();
            let mut tree = HashTree::for_keys(room);
            for (key, after) in changes {
                let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let before = match after {
                    Some(after) => records.insert(hash, after),
                    None => records.remove(&hash),
                };
                tree.replace(hash, before, after);
            }
            prop_assert_eq!(&tree, &tree_of(&records, room));
            prop_assert_eq!(tree.keys(), records.len() as u64);
        }

        #[test]
        fn comparing_finds_exactly_the_leaves_of_differing_keys(
            a in records(), b in records(), room_a in 0..5000u64, room_b in 0..5000u64, shared in records(),
        ) {
            let with = |mut records: BTreeMap<u64, u64>| { records.extend(&shared); records };
            let (a, b) = (with(a), with(b));
            let (tree_a, tree_b) = (tree_of(&a, room_a), tree_of(&b, room_b));
            let leaf_bits = tree_a.leaf_bits().min(tree_b.leaf_bits());
            let keys = a.keys().chain(b.keys());
            let mut expected: Vec<u32> =
                keys.filter(|key| a.get(key) != b.get(key)).map(|key| (key >> (64 - leaf_bits)) as u32).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(differing(&tree_a, &tree_b).0, expected);
        }

        #[test]
        fn the_hashes_of_children_combine_to_their_parent(records in records(), room in 0..10_000u64) {
            let tree = tree_of(&records, room);
            let of = |bits, node| tree.children(bits, node).map(|children| xor(&children));
            prop_assert_eq!(of(0, 0), Some(tree.root()));
            for bits in (0..).take_while(|bits| bits + 8 <= tree.leaf_bits()) {
                for node in 0..(1 << bits).min(64) {
                    let children = tree.children(bits, node).unwrap();
                    for (child, hash) in (0..).zip(children) {
                        prop_assert_eq!(of(bits + 4, node << 4 | child), Some(hash));
                    }
                }
            }
            prop_assert_eq!(tree.children(tree.leaf_bits() - 3, 0), None);
            prop_assert_eq!(tree.children(1, 2), None);
        }
    }

    #[test]
    fn one_key_among_many_is_found_by_few_comparisons() {
        let hash = |key: u64| record_hash(key, 0);
        let records: BTreeMap<u64, u64> = (0..100_000).map(|key| (hash(key), key)).collect();
        let tree = tree_of(&records, records.len() as u64);
        let mut other = tree.clone();
        other.replace(hash(77), Some(77), Some(78));
        let (leaves, compared) = differing(&tree, &other);
        assert_eq!(leaves, [(hash(77) >> (64 - tree.leaf_bits())) as u32]);
        assert_eq!(compared, usize::from(tree.leaf_bits().div_ceil(4)));
    }

    #[test]
    fn keys_with_swapped_records_do_not_cancel_out() {
        let (a, b) = (BTreeMap::from([(1, 10), (2, 20)]), BTreeMap::from([(1, 20), (2, 10)]));
        assert_ne!(tree_of(&a, 0).root(), tree_of(&b, 0).root());
        assert_ne!(tree_of(&BTreeMap::from([(1, 10), (2, 10)]), 0).root(), 0);
    }

    #[test]
    fn a_tree_fits_twice_its_initial_number_of_keys() {
        for keys in [1u64, 100, 1000, 4096, 100_000] {
            let mut tree = HashTree::for_keys(keys);
            tree.keys = 2 * keys;
            assert!(!tree.is_crowded(), "{keys}");
            tree.keys = (LEAF_KEYS_MAX << tree.leaf_bits()) + 1;
            assert!(tree.is_crowded());
            assert!(HashTree::for_keys(tree.keys).leaf_bits() > tree.leaf_bits());
        }
    }
}
