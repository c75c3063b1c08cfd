//! A set of ids and multiplicities, as the bytes are and with the version in front, and a text.

#![no_main]

use fondaco_ids::{
    Budget, IdSet, SetQuery, difference, encode, encode_multiplicities, intersection, membership, multiplicities,
    parse_multiplicities, parse_text, union,
};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    if let Ok(set) = IdSet::parse(bytes) {
        let ids: Vec<u64> = set.iter().collect();
        assert_eq!(encode(&ids).as_deref(), Ok(bytes));
        assert_eq!(parse_text(&set.to_string()).as_ref(), Ok(&ids));
        assert_eq!(union(&[set, set], &mut Budget::of_ids(ids.len())), Ok(ids));
    }
    if let Ok(counts) = parse_multiplicities(bytes) {
        assert_eq!(encode_multiplicities(&counts).as_deref(), Ok(bytes));
    }
    // Bytes that were not checked: any result, and no panic.
    if let Ok(set) = IdSet::open(bytes) {
        let budget = &mut Budget::of_ids(10_000);
        let _ = (set.contains(7), set.last());
        let _ = multiplicities(&[set, set], budget);
        let _ = intersection(&[set, set], budget);
        let _ = difference(set, &[set], budget);
        let _ = membership(set, &[5, 1 << 40, 3], budget);
    }
}

/// Parts of a union: any result, and no panic.
fn merge(part: &[u8]) {
    for query in [SetQuery::Union, SetQuery::Difference, SetQuery::Intersection] {
        let _ = query.merge(&[Some(part), Some(&[1, 0, 9][..])], &mut Budget::of_ids(10_000));
        let _ = query.merge(&[Some(&[1, 0, 9][..]), Some(part)], &mut Budget::of_ids(10_000));
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[&[1], bytes].concat());
    merge(&[&[1], bytes].concat());
    merge(&[&[2], bytes].concat());
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = parse_text(text);
    }
});
