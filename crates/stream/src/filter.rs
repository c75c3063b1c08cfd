//! A filter that says of most keys without a record that they have none, by one access to memory.
//!
//! A blocked Bloom filter (Putze, Sanders, Singler: "Cache-, Hash- and Space-Efficient Bloom Filters", 2007): all
//! bits of a key are in one cache line. With 16 bits a key, fewer than one absent key in 200 is not recognised (see
//! the test).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A cache line of bits.
#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

/// Bits for each key.
const KEY_BITS: usize = 16;
/// How many bits a key sets.
const KEY_BITS_SET: u32 = 6;
/// Keys for each line.
const LINE_KEYS: usize = 512 / KEY_BITS;

/// The filter.
pub(crate) struct Filter {
    lines: Box<[Line]>,
}

impl Filter {
    /// A filter for at least this number of keys.
    pub(crate) fn with_room_for(keys: usize) -> Self {
        let lines = keys.div_ceil(LINE_KEYS).max(1).next_power_of_two();
        Self {
            lines: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    /// For how many keys it is large enough.
    pub(crate) fn room(&self) -> usize {
        self.lines.len() * LINE_KEYS
    }

    /// Its memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Adds the hash of a key.
    pub(crate) fn add(&self, hash: u64) {
        let line = self.line(hash);
        for bit in bits(hash) {
            line.0[bit >> 6].fetch_or(1 << (bit & 63), Relaxed);
        }
    }

    /// Whether the hash of a key may have been added. Never false for one that was.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let line = self.line(hash);
        // The bits are in one cache line. Without a branch after each, the processor goes on to the next key while it waits
        // for the line.
        bits(hash).fold(true, |has, bit| {
            has & (line.0[bit >> 6].load(Relaxed) & 1 << (bit & 63) != 0)
        })
    }

    #[inline]
    fn line(&self, hash: u64) -> &Line {
        // The high bits; `bits` takes others, from a product of all of them.
        &self.lines[(hash.rotate_left(20) as usize) & (self.lines.len() - 1)]
    }
}

/// The bits of a key in its line.
#[inline]
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..KEY_BITS_SET).map(move |number| (mixed >> (number * 9 + 10)) as usize & 511)
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    #[test]
    fn added_keys_are_found_and_most_others_are_not() {
        let filter = Filter::with_room_for(100_000);
        let hash = |number: u64| xxh3_64(&number.to_le_bytes());
        let keys = filter.room() as u64;
        (0..keys).for_each(|number| filter.add(hash(number)));
        assert!((0..keys).all(|number| filter.may_have(hash(number))));
        let wrong = (keys..2 * keys).filter(|&number| filter.may_have(hash(number))).count();
        assert!(wrong < keys as usize / 200, "{wrong} of {keys}");
        assert_eq!(filter.bytes() * 8, keys as usize * KEY_BITS);
    }
}
