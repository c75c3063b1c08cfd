//! Slots: the 16384 key slots of Redis Cluster.
//!
//! The slot is that of the *wire* key (`store:key`), computed according to the Redis Cluster specification: CRC16 (the
//! XMODEM variant) of the key modulo 16384, or of its hash tag if it has one. So every cluster-aware Redis client finds
//! the right node.

use crate::name::StoreName;

/// The number of slots.
pub const SLOT_COUNT: u32 = 16384;

/// How many bits a slot has.
pub const SLOT_BITS: u32 = SLOT_COUNT.trailing_zeros();

/// A slot: a number below [`SLOT_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number; `None` if the number is too high.
    pub const fn new(number: u16) -> Option<Self> {
        if (number as u32) < SLOT_COUNT {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number itself.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The slot of a wire key, `store:key`.
#[inline]
pub fn slot_of_wire_key(wire_key: &[u8]) -> Slot {
    Slot(crc16(0, hash_tag(wire_key).unwrap_or(wire_key)) & (SLOT_COUNT as u16 - 1))
}

/// The slot of `key` in `store`, without building the wire key.
pub fn slot_of_key(store: &StoreName, key: &[u8]) -> Slot {
    SlotPrefix::of(store).slot(key)
}

/// The CRC of the common prefix of all wire keys of a store: for computing many slots of one store.
#[derive(Debug, Clone, Copy)]
pub struct SlotPrefix(u16);

impl SlotPrefix {
    /// The prefix of a store's keys.
    pub fn of(store: &StoreName) -> Self {
        Self(crc16(crc16(0, store.as_str().as_bytes()), b":"))
    }

    /// The slot of a key of that store.
    ///
    /// The name of a store contains no brace, so that a hash tag can only be in the key.
    #[inline]
    pub fn slot(self, key: &[u8]) -> Slot {
        let crc = match hash_tag(key) {
            Some(tag) => crc16(0, tag),
            None => crc16(self.0, key),
        };
        Slot(crc & (SLOT_COUNT as u16 - 1))
    }
}

/// The text between the first `{` and the first `}` after it, if it is not empty.
#[inline]
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'{', key)?;
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest)? {
        0 => None,
        length => Some(&rest[..length]),
    }
}

/// `TABLES[n][b]` is the CRC of byte `b` followed by `n` zero bytes.
///
/// Eight tables let the loop take eight bytes a step ("slicing by 8", Kounavis and Berry 2005): a slot is computed for
/// every lookup, and byte by byte it would cost more than the lookup's hash.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 {
                (crc << 1) ^ 0x1021
            } else {
                crc << 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = (before << 8) ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[inline]
fn crc16(mut crc: u16, bytes: &[u8]) -> u16 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for b in eights {
        crc = TABLES[7][(b[0] ^ (crc >> 8) as u8) as usize]
            ^ TABLES[6][(b[1] ^ crc as u8) as usize]
            ^ TABLES[5][b[2] as usize]
            ^ TABLES[4][b[3] as usize]
            ^ TABLES[3][b[4] as usize]
            ^ TABLES[2][b[5] as usize]
            ^ TABLES[1][b[6] as usize]
            ^ TABLES[0][b[7] as usize];
    }
    for b in rest {
        crc = (crc << 8) ^ TABLES[0][((crc >> 8) as u8 ^ b) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, bit by bit.
    fn crc16_by_bits(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                if crc & 0x8000 != 0 {
                    (crc << 1) ^ 0x1021
                } else {
                    crc << 1
                }
            })
        })
    }

    /// The part of the key that is hashed, byte by byte, as in the specification of Redis Cluster.
    fn hashed_part(key: &[u8]) -> &[u8] {
        for (open, &byte) in key.iter().enumerate() {
            if byte != b'{' {
                continue;
            }
            for close in open + 1..key.len() {
                if key[close] == b'}' {
                    return if close == open + 1 { key } else { &key[open + 1..close] };
                }
            }
            return key;
        }
        key
    }

    #[test]
    fn the_check_value_of_the_specification_holds() {
        assert_eq!(crc16(0, b"123456789"), 0x31C3);
    }

    /// The replies of `CLUSTER KEYSLOT` of Redis 7.0.15.
    #[test]
    fn slots_are_those_of_redis_cluster() {
        let answers = [
            ("", 0),
            ("foo", 12182),
            ("somekey", 11058),
            ("123456789", 12739),
            ("foo{hash_tag}", 2515),
            ("{user1000}.following", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("}{a}", 15495),
            ("pymk:42", 11088),
            ("pymk:{42}a", 8000),
            ("pymk:a{}", 10329),
            ("{pymk:42", 3571),
        ];
        for (key, slot) in answers {
            assert_eq!(slot_of_wire_key(key.as_bytes()).get(), slot, "{key:?}");
        }
    }

    #[test]
    fn a_hash_tag_is_in_the_first_non_empty_braces() {
        let tagged = |key: &str| hash_tag(key.as_bytes()).map(|t| String::from_utf8_lossy(t).into_owned());
        assert_eq!(tagged("{user1000}.following").as_deref(), Some("user1000"));
        assert_eq!(tagged("foo{}{bar}"), None);
        assert_eq!(tagged("foo{{bar}}zap").as_deref(), Some("{bar"));
        assert_eq!(tagged("foo{bar}{zap}").as_deref(), Some("bar"));
        assert_eq!(tagged("foo{bar"), None);
    }

    proptest! {
        #[test]
        fn slicing_agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(crc16(0, &bytes), crc16_by_bits(&bytes));
        }

        /// Braces anywhere: before the colon, after it, around it.
        #[test]
        fn slots_agree_with_the_definition(key in "[a-c:{}]{0,24}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for key in [key.as_bytes(), &bytes] {
                prop_assert_eq!(slot_of_wire_key(key).get(), crc16_by_bits(hashed_part(key)) % 16384);
            }
        }

        #[test]
        fn a_key_has_the_slot_of_its_wire_key(key in "[a-z{}]{0,20}") {
            let store: StoreName = "pymk".parse().unwrap();
            let wire = format!("pymk:{key}");
            prop_assert_eq!(slot_of_key(&store, key.as_bytes()), slot_of_wire_key(wire.as_bytes()));
        }
    }
}
