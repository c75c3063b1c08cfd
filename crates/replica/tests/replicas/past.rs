//! Tombstones that all replicas may have collected are not sent to replicas without them: otherwise replicas would send
//! them to each other for ever. This test explores every order of comparisons and sweeps: a deleted value never
//! outlives its tombstone, even if a replica has lost its data.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{
    Causality, DotSource, Horizon, Over, Record, ReplicaId, Update, VectorClock, record_hash,
};
use fondaco_replica::exchange::{Exchange, Hashes, LeafEntry, Own, Step, differences, leaf_digest};

/// The only key, in the first leaf.
const KEY: &[u8] = b"k";
const KEY_HASH: u64 = 1;

/// The tombstone is past its grace period.
const HORIZON: Horizon = Horizon {
    now_unix_ms: 1000,
    grace_ms: 10,
    compared_ms: None,
    oldest_hint_unix_ms: Some(u64::MAX),
};

/// The record of the key on a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Held {
    Nothing,
    Value,
    Deletion {
        /// Whether a sweep has found it.
        found: bool,
        /// The replicas that it was compared with since, one bit each.
        compared: u8,
    },
}

struct Records {
    value: Record,
    deletion: Record,
}

impl Records {
    fn new() -> Self {
        let replica = ReplicaId {
            node: NodeId::FIRST,
            incarnation: 1,
        };
        let mut dots = DotSource::new(replica, 0);
        let nothing = VectorClock::new();
        let value = Update::put("v".into(), 1, None);
        let value = Record::write(None, &mut dots, Over::Context(&nothing), value).unwrap();
        let deletion = Update::delete(2);
        let deletion = Record::write(Some(&value), &mut dots, Over::Context(value.context()), deletion).unwrap();
        assert!(HORIZON.is_past(&deletion) && !HORIZON.is_past(&value));
        Self { value, deletion }
    }

    fn of(&self, held: Held) -> Option<&Record> {
        match held {
            Held::Nothing => None,
            Held::Value => Some(&self.value),
            Held::Deletion { .. } => Some(&self.deletion),
        }
    }

    fn hashes(&self, held: Held) -> Hashes {
        let mut children = [0; 16];
        if let Some(record) = self.of(held) {
            children[0] = record_hash(KEY_HASH, Record::digest(&record.to_bytes()));
        }
        Hashes {
            leaf_depth: 4,
            nodes: vec![children],
        }
    }

    fn leaf(&self, held: Held) -> Vec<LeafEntry> {
        let entry = |record: &Record| LeafEntry {
            key: Bytes::from_static(KEY),
            digest: leaf_digest(KEY, Record::digest(&record.to_bytes())),
            is_past: HORIZON.is_past(record),
        };
        self.of(held).map(entry).into_iter().collect()
    }

    /// The state of a replica after it was sent a record.
    fn merged(&self, into: Held, other: Held) -> Held {
        let Some(given) = self.of(other) else { return into };
        match self.of(into) {
            None if HORIZON.is_past(given) => into,
            own => {
                let merged = own.cloned().unwrap_or_default().merge(given);
                match self.of(into) == Some(&merged) {
                    true => into,
                    false => {
                        assert_eq!(self.of(other), Some(&merged));
                        fresh(other)
                    }
                }
            }
        }
    }

    /// The states of two replicas after the first has compared itself with the second.
    fn exchanged(&self, mut own: Held, mut other: Held) -> (Held, Held) {
        let mut exchange = Exchange::new();
        loop {
            match exchange.step() {
                Step::Compare { depth, nodes } => {
                    exchange.compared(depth, &nodes, &self.hashes(own), &self.hashes(other));
                }
                Step::Sync { leaves, .. } => {
                    assert_eq!(leaves, [0]);
                    let held = self.leaf(own);
                    let digests: Vec<u64> = held.iter().map(|entry| entry.digest).collect();
                    let found = differences(&self.leaf(other), &digests);
                    if !found.lacked_there.is_empty() {
                        own = self.merged(own, other);
                    }
                    let compare = |held: Held| self.of(held).map(|record| record.context().clone()).unwrap_or_default();
                    let verdict: Causality = compare(own).compare(&compare(other));
                    let differing = found.differing.into_iter().map(|key| (key, Own::Context(verdict)));
                    exchange.synced(&held, differing, &found.lacked_here);
                }
                Step::Get { .. } => own = self.merged(own, other),
                Step::Give { .. } => other = self.merged(other, own),
                Step::Done => return (own, other),
            }
        }
    }

    /// The state of a replica after a sweep.
    fn swept(&self, held: Held, all_others: u8) -> Held {
        let Held::Deletion { found, compared } = held else {
            return held;
        };
        let horizon = Horizon {
            compared_ms: (compared == all_others).then_some(2),
            ..HORIZON
        };
        match horizon.remembers(&self.deletion, found.then_some(1)) {
            None => Held::Nothing,
            Some(_) => Held::Deletion { found: true, compared },
        }
    }
}

/// The state of a record that has just arrived.
fn fresh(held: Held) -> Held {
    match held {
        Held::Deletion { .. } => DELETION,
        held => held,
    }
}

const DELETION: Held = Held::Deletion {
    found: false,
    compared: 0,
};

/// Explores all following states. Returns how many there are.
fn explore(start: &[Held]) -> usize {
    let records = Records::new();
    let mut known = HashSet::from([start.to_vec()]);
    let mut next = VecDeque::from([start.to_vec()]);
    while let Some(state) = next.pop_front() {
        let has_value = state.contains(&Held::Value);
        let has_deletion = state.iter().any(|held| matches!(held, Held::Deletion { .. }));
        assert!(
            has_deletion || !has_value,
            "the value of {start:?} has outlived its deletion"
        );
        let replicas = state.len();
        let mut following = Vec::new();
        for at in 0..replicas {
            let all_others = ((1u8 << replicas) - 1) & !(1 << at);
            let mut swept = state.clone();
            swept[at] = records.swept(state[at], all_others);
            following.push(swept);
            for with in (0..replicas).filter(|&with| with != at) {
                let mut exchanged = state.clone();
                let (own, other) = records.exchanged(state[at], state[with]);
                // A comparison counts for later sweeps only if a sweep had found the record before, and it is
                // unchanged.
                exchanged[at] = match own {
                    Held::Deletion { found: true, compared } if own == state[at] => Held::Deletion {
                        found: true,
                        compared: compared | 1 << with,
                    },
                    own => own,
                };
                exchanged[with] = other;
                following.push(exchanged);
            }
        }
        for state in following {
            if known.insert(state.clone()) {
                next.push_back(state);
            }
        }
    }
    known.len()
}

#[test]
fn a_deleted_value_never_outlives_its_tombstone() {
    use Held::{Nothing, Value};
    for start in [
        &[DELETION, Nothing, Value][..],
        &[DELETION, DELETION, Value],
        &[DELETION, Value, Value],
        &[DELETION, Nothing, Nothing, Value],
    ] {
        let states = explore(start);
        assert!(states > 100, "{start:?} leads to {states} states");
    }
}
