//! Bytes that are not a set: refused with what is wrong and where, and never a panic.

use fondaco_ids::{
    Budget, IdSet, IdsError, difference, encode, encode_multiplicities, intersection, intersects, membership,
    multiplicities, parse_multiplicities, union,
};
use proptest::prelude::*;

use super::{any_set, encoded};

/// Every accepted value is canonical, and every opened one can be used.
fn check(bytes: &[u8]) {
    if let Ok(set) = IdSet::parse(bytes) {
        let ids: Vec<u64> = set.iter().collect();
        assert_eq!(encode(&ids).unwrap(), bytes);
    }
    if let Ok(pairs) = parse_multiplicities(bytes) {
        assert_eq!(encode_multiplicities(&pairs).unwrap(), bytes);
    }
    let Ok(set) = IdSet::open(bytes) else {
        return;
    };
    // A hostile count may be large; the ids of blocks whose bytes are missing are not there.
    let good = encode(&[0, 5, 1000, 1 << 40]).unwrap();
    let good = IdSet::parse(&good).unwrap();
    let budget = &mut Budget::of_ids(100_000);
    let _ = (set.contains(5), set.first(), set.last(), set.iter().count());
    let _ = union(&[set, good, set], budget);
    let _ = multiplicities(&[set, good], budget);
    let _ = intersection(&[set, good], budget);
    let _ = intersection(&[set, set], budget);
    let _ = intersects(set, good, budget);
    let _ = difference(set, &[good, set], budget);
    let _ = difference(good, &[set], budget);
    let _ = membership(set, &[0, 7, 3, u64::MAX], budget);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes_end_in_an_answer_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        check(&bytes);
    }

    #[test]
    fn a_set_with_changed_bytes_ends_in_an_answer_or_an_error(
        ids in any_set(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = encoded(&ids);
        let mut bytes = whole.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len().min(40));
            bytes[place] = byte;
        }
        check(&bytes);
        let cut = cut.index(whole.len());
        if cut > 0 || ids.is_empty() {
            check(&whole[..cut]);
        }
        prop_assert!(IdSet::parse(&whole[..cut]).is_err() || cut == 1);
        let mut longer = whole;
        longer.push(0);
        prop_assert!(IdSet::parse(&longer).is_err());
    }
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let pair: Vec<u64> = (0..130).map(|id| id * 3).collect();
    let good = encode(&pair).unwrap();
    // Version, widths, count, two first ids of two bytes, offset, the block's width.
    assert_eq!(good[..9], [1, 0x09, 130, 0, 0, 0x80, 1, 33, 2]);
    let parse = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        IdSet::parse(&bytes).unwrap_err().to_string()
    };
    for (place, byte, expected) in [
        (0, 2, "has the format 2, and this program knows 1"),
        (
            1,
            0x11,
            "invalid at byte 1: the count is not written in the shortest way",
        ),
        (1, 0x29, "invalid at byte 1: the count has more than 4 bytes"),
        (2, 0, "invalid at byte 2: the count is 0, and bytes follow it"),
        (2, 129, "invalid at byte 41: there are bytes after the last block"),
        (3, 9, "invalid at byte 5: the ids of a block are not above those"),
        (
            6,
            0,
            "invalid at byte 1: the first ids are not written in the shortest way",
        ),
        (
            7,
            32,
            "invalid at byte 7: a block does not begin where the one before it ends",
        ),
        (8, 3, "invalid at byte 8: "),
        (
            8,
            65,
            "invalid at byte 8: the bytes end within a block, or its widths are impossible",
        ),
    ] {
        let error = parse(place, byte);
        assert!(error.contains(expected), "{place} {byte}: {error}");
    }
    assert_eq!(
        IdSet::parse(&[]).unwrap_err(),
        IdsError::Invalid {
            at: 0,
            reason: "there are no bytes"
        }
    );
}
