//! An exchange: the steps by which two replicas of a partition compare their records, until both hold the join of the
//! two. It has no I/O, threads or clock: its driver carries out each [`Step`] and reports the result.
//!
//! First hashes are compared, from the root of the hash tree down to the leaves that differ, 16 children at a time;
//! then, leaf by leaf, the keys. For a key that both hold, contexts are compared before any record is sent, so that a
//! record goes only to the side that lacks it.
//!
//! ```text
//! Compare ─▶ the nodes below that differ ─▶ Compare … ─▶ Sync the leaves that differ ─▶ Get, Give
//! ```
//!
//! The depth of each tree depends on its number of keys. The exchange goes down to the deeper leaves, so that the
//! records in a leaf are few even if one side is empty.
//!
//! Leaves with too many keys for one answer are divided, and a leaf into the nodes below it: the members of a large set share
//! the first bits of their hashes ([`fondaco_model::member`]).
//!
//! The side that answers trusts no request: its cost is bounded, whatever the request says. If the nodes of a request
//! cost more than that, only the first ones are answered, and the others are requested again.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use fondaco_model::versioned::{Causality, LEAF_BITS_MAX};

/// How many nodes of the tree one step compares.
pub const NODES_MAX: usize = 128;

/// How many leaves one step compares.
pub const LEAVES_MAX: usize = 64;

/// How many records one step fetches.
pub const GET_KEYS_MAX: usize = 32;

/// How many bits of a hash one comparison descends.
pub const STEP_BITS: u8 = 4;

/// The deepest level at which anything is compared: no tree has deeper leaves.
pub const DEPTH_MAX: u8 = LEAF_BITS_MAX;

/// The deepest level at which keys are compared: below slots and what all members of a set have in common.
pub const SYNC_DEPTH_MAX: u8 = 48;

/// Hashes of a tree: those of the 16 children of each requested node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashes {
    /// The depth of the leaves: how many bits of a hash select a leaf.
    pub leaf_depth: u8,
    /// The hashes.
    pub nodes: Vec<[u64; 16]>,
}

/// A record of this side, in a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafEntry {
    /// The key.
    pub key: Bytes,
    /// Four bytes of the key's hash, and four of the record's digest.
    pub digest: u64,
    /// Whether it is only a tombstone that all may have collected: a replica without it need not receive it.
    pub is_past: bool,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Request the hashes below these nodes from the peer, and compute one's own.
    Compare {
        /// Their depth: how many bits of a key's hash tell them apart.
        depth: u8,
        /// Their numbers at that depth.
        nodes: Vec<u32>,
    },
    /// Send the peer the digests of these leaves, and merge its reply.
    Sync {
        /// Their depth.
        depth: u8,
        /// Their numbers at that depth.
        leaves: Vec<u64>,
    },
    /// Fetch the records of these keys from the peer, and merge them.
    Get {
        /// The keys.
        keys: Vec<Bytes>,
    },
    /// Send one's own records of these keys to the peer, which merges them.
    Give {
        /// The keys, maybe many: their records are sent in portions.
        keys: Vec<Bytes>,
    },
    /// Both sides hold the same records.
    Done,
}

/// The result of comparing a key that both hold in different states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// The relation of one's own context to that of the peer.
    Context(Causality),
    /// One's own record is gone or cannot be read.
    Missing,
}

/// The exchange of one partition, on the side that began it.
#[derive(Debug)]
pub struct Exchange {
    /// The depth of the leaves that are compared; unknown before the roots are compared.
    leaf_depth: Option<u8>,
    compares: VecDeque<(u8, Vec<u32>)>,
    leaves: Vec<u64>,
    /// Parts of leaves that had too many keys, with their depth.
    parts: Vec<(u8, Vec<u64>)>,
    gets: Vec<Bytes>,
    gives: Vec<Bytes>,
}

impl Default for Exchange {
    fn default() -> Self {
        Self::new()
    }
}

impl Exchange {
    /// An exchange that begins at the roots.
    pub fn new() -> Self {
        Self {
            leaf_depth: None,
            compares: VecDeque::from([(0, vec![0])]),
            leaves: Vec::new(),
            parts: Vec::new(),
            gets: Vec::new(),
            gives: Vec::new(),
        }
    }

    /// The next step. Report its result, if there is a method for it.
    ///
    /// Leaves go before hashes, and records before leaves, so that little is kept in memory at any time.
    pub fn step(&mut self) -> Step {
        if !self.gives.is_empty() {
            let keys = std::mem::take(&mut self.gives);
            return Step::Give { keys };
        }
        if !self.gets.is_empty() {
            let rest = self.gets.len().saturating_sub(GET_KEYS_MAX);
            let keys = self.gets.split_off(rest);
            return Step::Get { keys };
        }
        if let Some((depth, leaves)) = self.parts.pop() {
            return Step::Sync { depth, leaves };
        }
        let is_last = self.compares.is_empty();
        if self.leaves.len() >= LEAVES_MAX || (is_last && !self.leaves.is_empty()) {
            let rest = self.leaves.len().saturating_sub(LEAVES_MAX);
            return Step::Sync {
                // There are no leaves before the depth is known.
                depth: self.leaf_depth.unwrap_or(STEP_BITS),
                leaves: self.leaves.split_off(rest),
            };
        }
        match self.compares.pop_front() {
            Some((depth, nodes)) => Step::Compare { depth, nodes },
            None => Step::Done,
        }
    }

    /// The hashes below nodes at a depth, on both sides, for the first of these nodes, one at least. The others are
    /// compared next.
    pub fn compared(&mut self, depth: u8, nodes: &[u32], own: &Hashes, theirs: &Hashes) {
        let answered = nodes.len().min(own.nodes.len()).min(theirs.nodes.len());
        if answered < nodes.len() {
            self.compares.push_front((depth, nodes[answered..].to_vec()));
        }
        let leaf_depth = *self.leaf_depth.get_or_insert_with(|| {
            let deeper = own.leaf_depth.max(theirs.leaf_depth);
            deeper.clamp(STEP_BITS, DEPTH_MAX)
        });
        let below = depth + STEP_BITS;
        let mut differing: Vec<u32> = Vec::new();
        for (&node, (own, theirs)) in nodes.iter().zip(own.nodes.iter().zip(&theirs.nodes)) {
            for (child, (own, theirs)) in (0u32..).zip(own.iter().zip(theirs)) {
                if own != theirs {
                    differing.push(node << STEP_BITS | child);
                }
            }
        }
        if below >= leaf_depth {
            self.leaves.extend(differing.into_iter().map(u64::from));
            return;
        }
        // The last step descends less far than the others, to end at the leaves.
        let asked = below.min(leaf_depth - STEP_BITS);
        let mut nodes: Vec<u32> = differing.iter().map(|node| node >> (below - asked)).collect();
        nodes.dedup();
        // Depth first.
        for chunk in nodes.chunks(NODES_MAX).rev() {
            self.compares.push_front((asked, chunk.to_vec()));
        }
    }

    /// The leaves of a step have too many keys for one answer: they are compared in parts. Returns whether there are smaller
    /// parts.
    pub fn too_many(&mut self, depth: u8, leaves: &[u64]) -> bool {
        match leaves {
            [leaf] if depth + STEP_BITS <= SYNC_DEPTH_MAX => {
                let below = (0..1 << STEP_BITS).map(|child| leaf << STEP_BITS | child);
                self.parts.push((depth + STEP_BITS, below.collect()));
            }
            [] | [_] => return false,
            _ => {
                let (first, second) = leaves.split_at(leaves.len() / 2);
                self.parts.push((depth, second.to_vec()));
                self.parts.push((depth, first.to_vec()));
            }
        }
        true
    }

    /// The peer's reply about leaves: keys that both hold in different states, with the relation of one's own context
    /// to the peer's, and records that the peer lacks.
    pub fn synced(&mut self, own: &[LeafEntry], differing: impl IntoIterator<Item = (Bytes, Own)>, lacking: &[u64]) {
        for (key, verdict) in differing {
            let (get, give) = match verdict {
                Own::Context(Causality::Before) | Own::Missing => (true, false),
                Own::Context(Causality::After) => (false, true),
                // Equal contexts of different records: written by an earlier version, or pruned clocks.
                Own::Context(Causality::Concurrent | Causality::Equal) => (true, true),
            };
            if give {
                self.gives.push(key.clone());
            }
            if get {
                self.gets.push(key);
            }
        }
        let lacking: HashSet<u64> = lacking.iter().copied().collect();
        let lacking = own
            .iter()
            .filter(|entry| !entry.is_past && lacking.contains(&entry.digest));
        self.gives.extend(lacking.map(|entry| entry.key.clone()));
    }
}

/// The answer of the other side about leaves: the differences between its records and those of the requesting side.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Keys whose hash the requesting side lacks.
    pub lacked_there: Vec<Bytes>,
    /// Keys whose hash the requesting side has with another digest.
    pub differing: Vec<Bytes>,
    /// Digests of the requesting side whose hash is absent here.
    pub lacked_here: Vec<u64>,
}

/// Compares one's own leaf entries with the digests of the requesting side, in time linear in both together.
pub fn differences(own: &[LeafEntry], theirs: &[u64]) -> Differences {
    let hash_part = |digest: u64| digest >> 32;
    let held_there: HashSet<u64> = theirs.iter().copied().collect();
    let known_there: HashSet<u64> = theirs.iter().copied().map(hash_part).collect();
    let known_here: HashSet<u64> = own.iter().map(|entry| hash_part(entry.digest)).collect();
    let mut found = Differences::default();
    for entry in own.iter().filter(|entry| !held_there.contains(&entry.digest)) {
        match known_there.contains(&hash_part(entry.digest)) {
            true => found.differing.push(entry.key.clone()),
            false if entry.is_past => {}
            false => found.lacked_there.push(entry.key.clone()),
        }
    }
    let is_lacked = |digest: &u64| !known_here.contains(&hash_part(*digest));
    found.lacked_here.extend(theirs.iter().copied().filter(is_lacked));
    found
}

/// The digest of a record in a leaf.
pub fn leaf_digest(key: &[u8], record_digest: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key) << 32 | record_digest & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fondaco_model::versioned::{DotSource, HashTree, Over, Record, ReplicaId, Update, VectorClock, record_hash};
    use fondaco_model::{NodeId, ValueType, member};
    use proptest::prelude::*;

    use super::*;

    /// A partition of a replica: its records, and the depth of its tree.
    struct Side {
        records: BTreeMap<Bytes, Record>,
        tree_for_keys: u64,
    }

    impl Side {
        fn entries(&self, depth: u8, node: u64) -> impl Iterator<Item = (&Bytes, u64, u64)> {
            let all = self.records.iter().map(|(key, record)| {
                let digest = Record::digest(&record.to_bytes());
                (key, member::key_hash(ValueType::Graph, key), digest)
            });
            all.filter(move |(_, hash, _)| hash.checked_shr(64 - u32::from(depth)).unwrap_or(0) == node)
        }

        fn hashes(&self, depth: u8, nodes: &[u32]) -> Hashes {
            let children = |&node: &u32| {
                let mut children = [0; 16];
                for (_, hash, digest) in self.entries(depth, node.into()) {
                    children[(hash >> (60 - depth) & 15) as usize] ^= record_hash(hash, digest);
                }
                children
            };
            Hashes {
                leaf_depth: HashTree::for_keys(self.tree_for_keys).leaf_bits(),
                nodes: nodes.iter().map(children).collect(),
            }
        }

        fn leaf(&self, depth: u8, leaf: u64) -> Vec<LeafEntry> {
            let entry = |(key, _, digest): (&Bytes, u64, u64)| LeafEntry {
                key: key.clone(),
                digest: leaf_digest(key, digest),
                is_past: false,
            };
            self.entries(depth, leaf).map(entry).collect()
        }

        fn merge(&mut self, key: &Bytes, record: &Record) {
            let own = self.records.entry(key.clone()).or_default();
            *own = own.merge(record);
        }
    }

    /// The records that an exchange transferred.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Moved {
        here: usize,
        there: usize,
        messages: usize,
    }

    /// Runs an exchange between two sides.
    fn run(own: &mut Side, other: &mut Side) -> Moved {
        run_within(own, other, NODES_MAX, usize::MAX)
    }

    /// The same, with at most this many nodes in a reply, and this many keys of leaves.
    fn run_within(own: &mut Side, other: &mut Side, answered_max: usize, entries_max: usize) -> Moved {
        let mut exchange = Exchange::new();
        let mut moved = Moved::default();
        loop {
            moved.messages += 1;
            match exchange.step() {
                Step::Compare { depth, nodes } => {
                    assert!((1..=NODES_MAX).contains(&nodes.len()));
                    let answered = &nodes[..nodes.len().min(answered_max)];
                    exchange.compared(
                        depth,
                        &nodes,
                        &own.hashes(depth, &nodes),
                        &other.hashes(depth, answered),
                    );
                }
                Step::Sync { depth, leaves } => {
                    assert!((1..=LEAVES_MAX).contains(&leaves.len()));
                    let held = |side: &Side| leaves.iter().map(|&leaf| side.leaf(depth, leaf).len()).sum::<usize>();
                    if held(own).max(held(other)) > entries_max {
                        assert!(exchange.too_many(depth, &leaves));
                        continue;
                    }
                    let (mut entries, mut differing, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
                    for leaf in leaves {
                        let held = own.leaf(depth, leaf);
                        let digests: Vec<u64> = held.iter().map(|entry| entry.digest).collect();
                        let found = differences(&other.leaf(depth, leaf), &digests);
                        for key in found.lacked_there {
                            moved.here += 1;
                            own.merge(&key, &other.records[&key]);
                        }
                        differing.extend(found.differing.into_iter().map(|key| {
                            let theirs = other.records[&key].context();
                            let verdict = match own.records.get(&key) {
                                Some(own) => Own::Context(own.context().compare(theirs)),
                                None => Own::Missing,
                            };
                            (key, verdict)
                        }));
                        lacking.extend(found.lacked_here);
                        entries.extend(held);
                    }
                    exchange.synced(&entries, differing, &lacking);
                }
                Step::Get { keys } => {
                    assert!((1..=GET_KEYS_MAX).contains(&keys.len()));
                    for key in keys {
                        moved.here += 1;
                        own.merge(&key, &other.records[&key]);
                    }
                }
                Step::Give { keys } => {
                    for key in keys {
                        moved.there += 1;
                        other.merge(&key, &own.records[&key]);
                    }
                }
                Step::Done => return moved,
            }
        }
    }

    /// How a key got its state on both sides.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum History {
        Same,
        OnlyHere,
        OnlyThere,
        NewerHere,
        NewerThere,
        Concurrent,
    }

    fn write(local: Option<&Record>, node: u32, counter: u64) -> Record {
        let replica = ReplicaId {
            node: NodeId::new(node).unwrap(),
            incarnation: 1,
        };
        let over = VectorClock::new();
        let update = Update::put(format!("{node}-{counter}").into(), counter, None);
        Record::write(local, &mut DotSource::new(replica, counter), Over::All(&over), update).unwrap()
    }

    fn sides(histories: &[History], trees: (u64, u64)) -> (Side, Side) {
        let side = |tree_for_keys| Side {
            records: BTreeMap::new(),
            tree_for_keys,
        };
        let (mut own, mut other) = (side(trees.0), side(trees.1));
        for (number, history) in (0u64..).zip(histories) {
            let key = Bytes::from(format!("key-{number}"));
            let first = write(None, 1, 2 * number);
            let newer = write(Some(&first), 1, 2 * number + 1);
            let concurrent = write(None, 2, number);
            let (here, there) = match history {
                History::Same => (Some(&first), Some(&first)),
                History::OnlyHere => (Some(&first), None),
                History::OnlyThere => (None, Some(&first)),
                History::NewerHere => (Some(&newer), Some(&first)),
                History::NewerThere => (Some(&first), Some(&newer)),
                History::Concurrent => (Some(&first), Some(&concurrent)),
            };
            own.records.extend(here.map(|record| (key.clone(), record.clone())));
            other.records.extend(there.map(|record| (key.clone(), record.clone())));
        }
        (own, other)
    }

    proptest! {
        // Each case compares two whole partitions.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn both_sides_reach_the_join_without_superfluous_records(
            histories in prop::collection::vec(
                prop_oneof![
                    8 => Just(History::Same),
                    1 => Just(History::OnlyHere),
                    1 => Just(History::OnlyThere),
                    1 => Just(History::NewerHere),
                    1 => Just(History::NewerThere),
                    1 => Just(History::Concurrent),
                ],
                0..300,
            ),
            trees in (0..3000u64, 0..3000u64),
        ) {
            let (mut own, mut other) = sides(&histories, trees);
            let moved = run(&mut own, &mut other);
            prop_assert_eq!(&own.records, &other.records);
            prop_assert_eq!(own.records.len(), histories.len());
            let count = |which: &[History]| histories.iter().filter(|history| which.contains(history)).count();
            prop_assert_eq!(moved.here, count(&[History::OnlyThere, History::NewerThere, History::Concurrent]));
            prop_assert_eq!(moved.there, count(&[History::OnlyHere, History::NewerHere, History::Concurrent]));
            prop_assert_eq!(run(&mut own, &mut other), Moved { messages: 2, ..Moved::default() });
        }
    }

    #[test]
    fn an_empty_side_is_filled_leaf_by_leaf() {
        let (mut own, mut other) = sides(&vec![History::OnlyThere; 2000], (0, 2000));
        let moved = run(&mut own, &mut other);
        assert_eq!((moved.here, moved.there), (2000, 0));
        assert_eq!(own.records, other.records);
    }

    #[test]
    fn one_difference_among_many_takes_few_messages() {
        let mut histories = vec![History::Same; 5000];
        histories[777] = History::NewerThere;
        let (mut own, mut other) = sides(&histories, (5000, 5000));
        let moved = run(&mut own, &mut other);
        assert_eq!((moved.here, moved.there), (1, 0));
        assert!(moved.messages <= 7, "{moved:?}");
    }

    #[test]
    fn nodes_without_a_reply_are_requested_again() {
        let (mut own, mut other) = sides(&vec![History::OnlyThere; 2000], (0, 2000));
        let moved = run_within(&mut own, &mut other, 1, usize::MAX);
        assert_eq!((moved.here, moved.there), (2000, 0));
        assert_eq!(own.records, other.records);
    }

    #[test]
    fn members_of_a_large_set_are_compared_in_parts() {
        let (mut own, mut other) = sides(&[], (4000, 4000));
        for id in 0..4000 {
            let key = Bytes::from(member::key(b"out:KNOWS{7}", id));
            let (first, newer) = (write(None, 1, 2 * id), write(None, 2, 2 * id));
            own.records.insert(key.clone(), first.clone());
            other.records.insert(key, if id % 1000 == 0 { newer } else { first });
        }
        let moved = run_within(&mut own, &mut other, NODES_MAX, 100);
        assert_eq!((moved.here, moved.there), (4, 4));
        assert_eq!(own.records, other.records);
        let mut exchange = Exchange::new();
        assert!(!exchange.too_many(SYNC_DEPTH_MAX, &[1]));
    }

    #[test]
    fn a_claimed_impossible_depth_ends_at_the_deepest_leaves() {
        let mut exchange = Exchange::new();
        let hashes = |leaf_depth, hash| Hashes {
            leaf_depth,
            nodes: vec![[hash; 16]],
        };
        let mut compared = 0;
        loop {
            match exchange.step() {
                Step::Compare { depth, nodes } => {
                    assert!(depth <= DEPTH_MAX - STEP_BITS);
                    exchange.compared(depth, &nodes[..1], &hashes(4, 0), &hashes(u8::MAX, 1));
                    compared += 1;
                }
                Step::Sync { depth, .. } => {
                    assert_eq!((depth, compared), (DEPTH_MAX, 6));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_cost_of_a_leaf_is_linear_in_its_digests() {
        let entry = |number: u64| LeafEntry {
            key: Bytes::new(),
            digest: number << 32,
            is_past: false,
        };
        let own: Vec<LeafEntry> = (0..200_000).map(entry).collect();
        let theirs: Vec<u64> = (100_000..300_000).map(|number| number << 32).collect();
        // Comparing each with each would take minutes.
        let found = differences(&own, &theirs);
        assert_eq!((found.lacked_there.len(), found.lacked_here.len()), (100_000, 100_000));
        assert!(found.differing.is_empty());
        let mut exchange = Exchange::new();
        exchange.synced(&own, [], &theirs);
        let Step::Give { keys } = exchange.step() else { panic!() };
        assert_eq!(keys.len(), 100_000);
    }
}
