//! Multiplicities on their way between partitions: encoded, and added up. That all partial results merge to the result over
//! all sets is tested in `query`.

use fondaco_ids::{Budget, IdsError, Multiplicity, encode_multiplicities, merge_multiplicities, parse_multiplicities};
use proptest::prelude::*;

proptest! {
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
