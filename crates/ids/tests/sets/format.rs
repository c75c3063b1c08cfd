//! Sets are read as they were written. Each set has one encoding, which is short.

use std::collections::BTreeSet;

use fondaco_ids::{ID_MAX, IdSet, IdsError, encode, parse_text};
use proptest::prelude::*;

use super::{any_set, encoded};

proptest! {
    #[test]
    fn a_set_is_read_as_it_was_written(ids in any_set(), probes in any_set()) {
        let bytes = encoded(&ids);
        let set = IdSet::parse(&bytes).unwrap();
        prop_assert_eq!(set.as_bytes(), &bytes[..]);
        prop_assert_eq!((set.len(), set.is_empty()), (ids.len(), ids.is_empty()));
        prop_assert_eq!((set.first(), set.last()), (ids.first().copied(), ids.last().copied()));
        prop_assert!(set.iter().eq(ids.iter().copied()));
        let mut decoded = vec![7];
        set.decode_into(&mut decoded);
        prop_assert!(decoded[1..].iter().eq(ids.iter()));
        for id in probes.iter().chain(&ids).flat_map(|&id| [id.saturating_sub(1), id, id + 1]) {
            prop_assert_eq!(set.contains(id), ids.contains(&id), "{}", id);
        }
    }

    #[test]
    fn text_is_read_as_it_was_written(ids in any_set()) {
        let bytes = encoded(&ids);
        let text = IdSet::parse(&bytes).unwrap().to_string();
        let ids: Vec<u64> = ids.into_iter().collect();
        prop_assert_eq!(parse_text(&text.replace(' ', ",")), Ok(ids.clone()));
        prop_assert_eq!(parse_text(&text), Ok(ids));
    }
}

#[test]
fn small_sets_are_tiny() {
    assert_eq!(encode(&[]).unwrap().len(), 1);
    assert_eq!(encode(&[7]).unwrap().len(), 3);
    assert_eq!(encode(&[u64::from(u32::MAX)]).unwrap().len(), 6);
    assert_eq!(encode(&[3, 4, 5, 6]).unwrap().len(), 5);
    let ten: Vec<u64> = (0..10).map(|index| 1_000_000 + index * 1000).collect();
    assert!(encode(&ten).unwrap().len() <= 20);
}

#[test]
fn an_id_has_63_bits() {
    let bytes = encode(&[0, ID_MAX]).unwrap();
    let set = IdSet::parse(&bytes).unwrap();
    assert!(set.contains(0) && set.contains(ID_MAX) && !set.contains(1 << 63));
    assert_eq!(encode(&[0, 1 << 63]), Err(IdsError::TooLarge { id: 1 << 63 }));
    let error = encode(&[1 << 63]).unwrap_err().to_string();
    assert_eq!(
        error,
        "id 9223372036854775808 is too large: ids are at most 9223372036854775807"
    );
}

#[test]
fn ids_that_are_not_ascending_are_refused_by_name() {
    assert_eq!(encode(&[1, 5, 4]), Err(IdsError::NotAscending { id: 4, before: 5 }));
    assert_eq!(encode(&[1, 5, 5]), Err(IdsError::NotAscending { id: 5, before: 5 }));
}

#[test]
fn the_bytes_of_a_set_stay_as_they_are() {
    let hex = |ids: &[u64]| {
        encode(ids)
            .unwrap()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(hex(&[]), "01");
    assert_eq!(hex(&[9]), "01 00 09");
    assert_eq!(hex(&[1000]), "01 01 e8 03");
    // A byte for the count, first id 1, gaps 3 and 0 less one each, in three bits.
    assert_eq!(hex(&[1, 5, 9]), "01 08 03 01 02 0f");
    // Two blocks, the second at offset 1: widths 0, since nothing is between the ids.
    let ids: Vec<u64> = (0..130).collect();
    assert_eq!(hex(&ids), "01 08 82 00 80 01 00 00");
}

#[test]
fn a_few_thousand_sets_of_each_size_around_a_block_are_read() {
    for length in (0..5).chain(120..136).chain(250..262) {
        for step in [1u64, 2, 1000, 1 << 40] {
            let ids: BTreeSet<u64> = (0..length).map(|index| index * step).collect();
            let bytes = encoded(&ids);
            assert!(
                IdSet::parse(&bytes).unwrap().iter().eq(ids.iter().copied()),
                "{length} {step}"
            );
        }
    }
}
