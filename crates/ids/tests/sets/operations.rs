//! Every operation gives what `BTreeSet` gives, within its budget.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_ids::{
    Budget, IdSet, IdsError, Multiplicity, difference, encode, intersection, intersects, membership, multiplicities,
    top, union,
};
use proptest::prelude::*;

use super::{any_set, encoded, views};

/// Several sets, often with much in common.
fn any_sets() -> impl Strategy<Value = Vec<BTreeSet<u64>>> {
    (any_set(), proptest::collection::vec((any_set(), any::<bool>()), 0..7)).prop_map(|(common, sets)| {
        sets.into_iter()
            .map(|(set, has_common)| if has_common { &set | &common } else { set })
            .collect()
    })
}

fn counted(sets: &[BTreeSet<u64>]) -> Vec<Multiplicity> {
    let mut counts = BTreeMap::new();
    for &id in sets.iter().flatten() {
        *counts.entry(id).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .map(|(id, count)| Multiplicity { id, count })
        .collect()
}

/// The result with enough room, after it was refused where there is room for one less.
fn within<T>(length: usize, operation: impl Fn(&mut Budget<'_>) -> Result<Vec<T>, IdsError>) -> Vec<T> {
    if let Some(ids_max) = length.checked_sub(1) {
        assert_eq!(
            operation(&mut Budget::of_ids(ids_max)).err(),
            Some(IdsError::TooMany { ids_max })
        );
    }
    operation(&mut Budget::of_ids(length)).unwrap()
}

proptest! {
    #[test]
    fn unions_and_multiplicities(sets in any_sets(), length in 0..50usize) {
        let values: Vec<Vec<u8>> = sets.iter().map(encoded).collect();
        let views = views(&values);
        let mut expected = counted(&sets);
        let ids: Vec<u64> = expected.iter().map(|multiplicity| multiplicity.id).collect();
        prop_assert_eq!(within(ids.len(), |budget| union(&views, budget)), ids);
        prop_assert_eq!(&within(expected.len(), |budget| multiplicities(&views, budget)), &expected);
        let found = top(expected.clone(), length);
        expected.sort_by_key(|&Multiplicity { id, count }| (std::cmp::Reverse(count), id));
        expected.truncate(length);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn intersections(sets in any_sets()) {
        let values: Vec<Vec<u8>> = sets.iter().map(encoded).collect();
        let views = views(&values);
        let common = sets.iter().cloned().reduce(|a, b| &a & &b).unwrap_or_default();
        let common: Vec<u64> = common.into_iter().collect();
        prop_assert_eq!(within(common.len(), |budget| intersection(&views, budget)), common);
        for (a, view) in sets.iter().zip(&views) {
            let found = intersects(*view, views[0], &mut Budget::of_ids(0));
            prop_assert_eq!(found, Ok(!a.is_disjoint(&sets[0])));
        }
    }

    #[test]
    fn differences(first in any_set(), others in any_sets()) {
        let value = encoded(&first);
        let view = IdSet::parse(&value).unwrap();
        let values: Vec<Vec<u8>> = others.iter().map(encoded).collect();
        let views = views(&values);
        let left = others.iter().fold(first, |left, other| &left - other);
        let left: Vec<u64> = left.into_iter().collect();
        prop_assert_eq!(within(left.len(), |budget| difference(view, &views, budget)), left);
    }

    #[test]
    fn memberships(set in any_set(), mut candidates: Vec<u64>, more in any_set()) {
        candidates.extend(set.iter().chain(&more).rev().step_by(3));
        candidates.extend(&set);
        let value = encoded(&set);
        let view = IdSet::parse(&value).unwrap();
        let expected: Vec<bool> = candidates.iter().map(|id| set.contains(id)).collect();
        prop_assert_eq!(within(candidates.len(), |budget| membership(view, &candidates, budget)), expected);
    }
}

#[test]
fn many_sets_of_several_windows_are_merged() {
    // 600 sets of 300 ids: 1800 blocks, three windows.
    let mut random = fastrand::Rng::with_seed(1);
    for range in [2_000, 1_000_000, 1 << 62] {
        let sets: Vec<BTreeSet<u64>> = (0..600)
            .map(|_| (0..300).map(|_| random.u64(0..range)).collect())
            .collect();
        let values: Vec<Vec<u8>> = sets.iter().map(encoded).collect();
        let found = multiplicities(&views(&values), &mut Budget::of_ids(usize::MAX)).unwrap();
        assert_eq!(found, counted(&sets));
    }
}

#[test]
fn an_operation_stops_when_the_caller_says_so() {
    let many = encode(&(0..100_000).collect::<Vec<u64>>()).unwrap();
    let many = IdSet::parse(&many).unwrap();
    type Operation = fn(IdSet<'_>, &mut Budget<'_>) -> Option<IdsError>;
    let operations: [Operation; 5] = [
        |set, budget| union(&[set, set], budget).err(),
        |set, budget| intersection(&[set, set], budget).err(),
        |set, budget| difference(set, &[set], budget).err(),
        |set, budget| multiplicities(&[set, set], budget).err(),
        |set, budget| membership(set, &set.iter().collect::<Vec<_>>(), budget).err(),
    ];
    for operation in operations {
        let mut asked = 0;
        let mut may_go_on = || {
            asked += 1;
            asked < 3
        };
        let error = operation(many, &mut Budget::new(usize::MAX, &mut may_go_on));
        assert_eq!((error, asked), (Some(IdsError::Stopped), 3));
    }
}

#[test]
fn sets_with_an_id_in_common_are_found_at_the_first_one() {
    let ids: Vec<u64> = (0..100_000).collect();
    let value = encode(&ids).unwrap();
    let set = IdSet::parse(&value).unwrap();
    let mut never = || false;
    assert_eq!(intersects(set, set, &mut Budget::new(0, &mut never)), Ok(true));
}
