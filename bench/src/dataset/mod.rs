//! The datasets of the benchmark: numbered records whose keys and values are derived from their numbers.
//!
//! A key is 12 decimal digits, the format that `redis-benchmark` uses; a value begins with its key, so that every
//! answer can be checked, and continues with characters that do not compress.

pub mod convert;
pub mod elsewhere;
pub mod file;
pub mod sorted;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The length of every key, in bytes.
pub const KEY_BYTES: usize = 12;

/// The number and size of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dataset {
    /// The number of records; their numbers are `0..records`.
    pub records: u64,
    /// The length of each value, in bytes, at least [`KEY_BYTES`].
    pub value_bytes: usize,
}

impl Dataset {
    /// The total size of keys and values, in bytes.
    pub fn bytes(self) -> u64 {
        self.records * (KEY_BYTES + self.value_bytes) as u64
    }
}

/// A name for files and tables: `10000000x100`.
impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.records, self.value_bytes)
    }
}

/// The key of a record.
#[inline]
pub fn key(mut id: u64) -> [u8; KEY_BYTES] {
    let mut digits = [b'0'; KEY_BYTES];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (id % 10) as u8;
        id /= 10;
    }
    digits
}

/// Appends the value of a record.
pub fn append_value(id: u64, value_bytes: usize, out: &mut Vec<u8>) {
    const CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let end = out.len() + value_bytes;
    out.extend_from_slice(&key(id)[..value_bytes.min(KEY_BYTES)]);
    let mut random = Random::new(id);
    while out.len() < end {
        let mut bits = random.next();
        for _ in 0..(end - out.len()).min(10) {
            out.push(CHARACTERS[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
}

/// Whether these bytes may be the value of a record: they must begin with its key.
#[inline]
pub fn is_value_of(id: u64, value: &[u8]) -> bool {
    value.starts_with(&key(id))
}

/// SplitMix64: small and fast. Not a library's generator: the values of records are made of it, and stay the same with
/// every version of every library.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below a bound.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// The next fraction, from 0 to less than 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A fixed permutation of `0..count`: offline jobs do not write their rows in key order.
#[derive(Debug, Clone, Copy)]
pub struct Scattered {
    count: u64,
    half_bits: u32,
}

impl Scattered {
    /// The permutation of this many numbers.
    pub fn new(count: u64) -> Self {
        let bits = 64 - count.max(2).saturating_sub(1).leading_zeros();
        Self {
            count,
            half_bits: bits.div_ceil(2),
        }
    }

    /// The image of a number. A Feistel network permutes the next power of four; results beyond `count` go through it
    /// again.
    pub fn place(self, mut number: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        loop {
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in 0..4u64 {
                let mixed = Random::new(right | round << 40).next();
                (left, right) = (right, (left ^ mixed) & mask);
            }
            number = left << self.half_bits | right;
            if number < self.count {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattering_is_a_permutation() {
        for count in [1, 2, 3, 1000, 4097] {
            let scattered = Scattered::new(count);
            let mut places: Vec<u64> = (0..count).map(|number| scattered.place(number)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn a_value_has_its_length_and_begins_with_its_key() {
        for value_bytes in [12, 13, 100, 1024] {
            let mut value = Vec::new();
            append_value(42, value_bytes, &mut value);
            assert_eq!(value.len(), value_bytes);
            assert!(is_value_of(42, &value) && !is_value_of(43, &value));
        }
        assert_eq!(&key(1_234), b"000000001234");
    }
}
