//! Sets of ids through the public interface, compared with `BTreeSet`.

use std::collections::BTreeSet;

use fondaco_ids::{ID_MAX, IdSet, encode};
use proptest::prelude::*;

mod format;
mod hostile;
mod operations;
mod parts;

/// A set of ids of one kind: empty, small, dense over several blocks, sparse, in runs, at the end of the range.
fn any_set() -> impl Strategy<Value = BTreeSet<u64>> {
    let runs = proptest::collection::vec((0..20_000u64, 1..300u64), 0..8).prop_map(|runs| {
        runs.into_iter()
            .flat_map(|(first, length)| first..first + length)
            .collect()
    });
    prop_oneof![
        proptest::collection::btree_set(0..40u64, 0..12),
        proptest::collection::btree_set(0..2_000u64, 0..800),
        proptest::collection::btree_set(0..100_000u64, 0..500),
        proptest::collection::btree_set(0..=ID_MAX, 0..300),
        proptest::collection::btree_set(ID_MAX - 500..=ID_MAX, 0..300),
        runs,
    ]
}

fn encoded(ids: &BTreeSet<u64>) -> Vec<u8> {
    let ids: Vec<u64> = ids.iter().copied().collect();
    encode(&ids).unwrap()
}

fn views(values: &[Vec<u8>]) -> Vec<IdSet<'_>> {
    values.iter().map(|value| IdSet::parse(value).unwrap()).collect()
}
