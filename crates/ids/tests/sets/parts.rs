//! Partial results of partitions merge to the result over all sets.

use std::collections::BTreeSet;

use fondaco_ids::{
    Budget, IdSet, IdsError, Multiplicity, difference, encode, encode_multiplicities, intersection,
    merge_multiplicities, multiplicities, parse_multiplicities, top, top_by_multiplicity, union,
};
use proptest::prelude::*;

use super::{any_set, encoded};

/// Encoded sets, each with the number of its partition.
fn any_parts() -> impl Strategy<Value = Vec<(Vec<u8>, usize)>> {
    let encoded = any_set().prop_map(|ids| encoded(&ids));
    proptest::collection::vec((encoded, 0..4usize), 1..12)
}

fn part(sets: &[(Vec<u8>, usize)], wanted: impl Fn(usize) -> bool) -> Vec<IdSet<'_>> {
    let of_part = sets.iter().filter(|(_, number)| wanted(*number));
    of_part.map(|(value, _)| IdSet::parse(value).unwrap()).collect()
}

/// The operation over the results of the partitions, each of which was encoded on its way.
fn merged(
    sets: &[(Vec<u8>, usize)],
    operation: fn(&[IdSet<'_>], &mut Budget<'_>) -> Result<Vec<u64>, IdsError>,
) -> Vec<u64> {
    let budget = &mut Budget::of_ids(usize::MAX);
    let numbers: BTreeSet<usize> = sets.iter().map(|(_, number)| *number).collect();
    let partial = numbers.into_iter().map(|number| {
        let ids = operation(&part(sets, |other| other == number), budget).unwrap();
        (encode(&ids).unwrap(), 0)
    });
    let partial: Vec<_> = partial.collect();
    operation(&part(&partial, |_| true), budget).unwrap()
}

proptest! {
    #[test]
    fn partial_results_merge_to_the_direct_one(sets in any_parts(), first in any_set(), length in 0..20usize) {
        let budget = &mut Budget::of_ids(usize::MAX);
        let all = part(&sets, |_| true);
        prop_assert_eq!(merged(&sets, union), union(&all, budget).unwrap());
        prop_assert_eq!(merged(&sets, intersection), intersection(&all, budget).unwrap());

        // The first set is in partition 0; the others subtract the unions of theirs.
        let first = encoded(&first);
        let first = IdSet::parse(&first).unwrap();
        let left = encode(&difference(first, &part(&sets, |number| number == 0), budget).unwrap()).unwrap();
        let unions: Vec<Vec<u8>> = (1..4)
            .map(|number| encode(&union(&part(&sets, |other| other == number), budget).unwrap()).unwrap())
            .collect();
        let unions: Vec<IdSet<'_>> = unions.iter().map(|value| IdSet::parse(value).unwrap()).collect();
        prop_assert_eq!(
            difference(IdSet::parse(&left).unwrap(), &unions, budget),
            difference(first, &all, budget)
        );

        let counts: Vec<Vec<Multiplicity>> = (0..4)
            .map(|number| {
                let counts = multiplicities(&part(&sets, |other| other == number), budget).unwrap();
                let bytes = encode_multiplicities(&counts).unwrap();
                assert_eq!(parse_multiplicities(&bytes).unwrap(), counts);
                counts
            })
            .collect();
        let counts = merge_multiplicities(&counts, budget).unwrap();
        prop_assert_eq!(&counts, &multiplicities(&all, budget).unwrap());
        prop_assert_eq!(top(&counts, length), top_by_multiplicity(&all, length, budget).unwrap());
    }

    #[test]
    fn counts_of_any_size_are_encoded(
        counts in proptest::collection::btree_map(0..1_000_000u64, prop_oneof![1..4u64, 1..=u64::MAX], 0..300),
    ) {
        let pairs: Vec<Multiplicity> = counts.into_iter().map(|(id, count)| Multiplicity { id, count }).collect();
        let bytes = encode_multiplicities(&pairs).unwrap();
        prop_assert_eq!(parse_multiplicities(&bytes).unwrap(), pairs);
        prop_assert!(parse_multiplicities(&bytes[..bytes.len() - 1]).is_err());
    }
}

#[test]
fn merging_counts_keeps_to_the_budget() {
    let part = |id| vec![Multiplicity { id, count: 1 }, Multiplicity { id: 7, count: u64::MAX }];
    let sum = merge_multiplicities(&[part(1), part(2)], &mut Budget::of_ids(3)).unwrap();
    assert_eq!(sum.last(), Some(&Multiplicity { id: 7, count: u64::MAX }));
    let refused = merge_multiplicities(&[part(1), part(2)], &mut Budget::of_ids(2));
    assert_eq!(refused, Err(IdsError::TooMany { ids_max: 2 }));
    let none = [Multiplicity { id: 5, count: 0 }];
    assert_eq!(encode_multiplicities(&none), Err(IdsError::NoMultiplicity { id: 5 }));
}
