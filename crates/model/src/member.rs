//! Sets whose members are records of their own, in versioned stores of graphs.
//!
//! The key of a set ends with a hash tag, and the key of a member is that key with the member's id behind it, in decimal
//! digits: `out:KNOWS{7}12` is the member 12 of the set `out:KNOWS{7}`. So a set and its members are in one partition. Within
//! it, the [hash](key_hash) of a member begins with that of its set: all members of a set are one range of the partition, and a
//! scan of it reads the set.

use xxhash_rust::xxh3::xxh3_64;

use crate::slot::{SLOT_BITS, Slot};
use crate::value_type::ValueType;

/// How many bits of a hash all members of a set have in common.
pub const SET_BITS: u32 = 20;

/// The set and the id of a key that may be one of a member.
pub fn parse(key: &[u8]) -> Option<(&[u8], u64)> {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (set, digits) = key.split_at(key.len() - digits);
    let is_one = set.ends_with(b"}") && memchr::memchr(b'{', set).is_some();
    // A number has one text.
    let is_canonical = digits.len() == 1 || digits.first().is_some_and(|&first| first != b'0');
    if !is_one || !is_canonical {
        return None;
    }
    let id = str::from_utf8(digits)
        .ok()?
        .parse()
        .ok()
        .filter(|&id: &u64| id >> 63 == 0)?;
    Some((set, id))
}

/// The key of a member of a set.
pub fn key(set: &[u8], id: u64) -> Vec<u8> {
    [set, id.to_string().as_bytes()].concat()
}

/// The position of a key among all of a versioned store, given its slot and its hash: records are kept in this order.
#[inline]
pub fn position(slot: Slot, hash: u64) -> u64 {
    u64::from(slot.get()) << (64 - SLOT_BITS) | hash >> SLOT_BITS
}

/// The hash of a key.
pub fn key_hash(value_type: ValueType, key: &[u8]) -> u64 {
    let own = xxh3_64(key);
    match parse(key) {
        Some((set, _)) if value_type == ValueType::Graph => {
            set_bits(set) << (64 - SET_BITS) | own & (u64::MAX >> SET_BITS)
        }
        _ => own,
    }
}

/// The first [`SET_BITS`] bits of the hashes of a set's members, as a number.
pub fn set_bits(set: &[u8]) -> u64 {
    xxh3_64(set) >> (64 - SET_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn members_are_told_from_other_keys() {
        assert_eq!(parse(b"out:KNOWS{7}12"), Some((&b"out:KNOWS{7}"[..], 12)));
        assert_eq!(parse(b"label:{3}0"), Some((&b"label:{3}"[..], 0)));
        for other in [
            "out:KNOWS{7}",
            "vertex{7}",
            "id:7",
            "id:}7",
            "x{7}012",
            "x{7}9223372036854775808",
            "",
            "x{1}+2",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn members_of_a_set_share_the_first_bits(set in "[a-z]{0,5}\\{[0-9]{1,5}\\}", id in 0..u64::MAX / 2) {
            let key = key(set.as_bytes(), id);
            prop_assert_eq!(parse(&key), Some((set.as_bytes(), id)));
            prop_assert_eq!(key_hash(ValueType::Graph, &key) >> (64 - SET_BITS), set_bits(set.as_bytes()));
            prop_assert_eq!(key_hash(ValueType::Bytes, &key), xxh3_64(&key));
        }
    }
}
