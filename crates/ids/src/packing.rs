//! Numbers without the bits that all of them lack, and numbers of a few whole bytes.
//!
//! ```text
//! block of n numbers   width in bits (1 byte, 0 to 64), n numbers of that many bits, lowest bits first, without gaps;
//!                      the last byte is filled with zeros. Nothing at all where n is 0
//! ```
//! The width is that of the largest number. A number is read with one load of eight bytes from where it begins, a shift and
//! a mask: no table of widths, and no vector instructions that would need `unsafe`.

/// The most numbers of a block.
pub(crate) const BLOCK: usize = 128;
/// So many bytes after a block are loaded with its last number.
const SLACK_BYTES: usize = 16;
const BLOCK_BYTES_MAX: usize = BLOCK * 8;

/// The bytes that a number needs, at least one.
pub(crate) fn byte_width(number: u64) -> usize {
    bit_width(number).div_ceil(8).max(1)
}

fn bit_width(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

fn mask(width: usize) -> u64 {
    match width {
        0 => 0,
        _ => u64::MAX >> (64 - width),
    }
}

/// Appends the lowest bytes of a number.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u64, width: usize) {
    out.extend_from_slice(&number.to_le_bytes()[..width]);
}

/// A number of 0 to 8 bytes that begins at a place; bytes that are not there count as zeros.
#[inline]
pub(crate) fn number_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    let word = match rest.first_chunk::<8>() {
        Some(word) => *word,
        None => {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            word
        }
    };
    u64::from_le_bytes(word) & mask(width * 8)
}

/// Appends a block.
pub(crate) fn put_block(out: &mut Vec<u8>, numbers: &[u64]) {
    if numbers.is_empty() {
        return;
    }
    let width = bit_width(numbers.iter().fold(0, |all, number| all | number));
    out.push(width as u8);
    let (mut pending, mut pending_bits) = (0u128, 0);
    for &number in numbers {
        pending |= u128::from(number) << pending_bits;
        pending_bits += width;
        while pending_bits >= 8 {
            out.push(pending as u8);
            pending >>= 8;
            pending_bits -= 8;
        }
    }
    if pending_bits > 0 {
        out.push(pending as u8);
    }
}

/// Reads the block that the bytes begin with; others may follow it. `None` if they end before it does, or if the width
/// is impossible.
#[inline]
pub(crate) fn read_block(bytes: &[u8], numbers: &mut [u64]) -> Option<()> {
    if numbers.is_empty() {
        return Some(());
    }
    let (&width, packed) = bytes.split_first()?;
    let width = usize::from(width);
    if width > 64 {
        return None;
    }
    let packed_bytes = (numbers.len() * width).div_ceil(8);
    if packed.len() >= packed_bytes + SLACK_BYTES {
        unpack(packed, width, numbers);
    } else {
        let mut padded = [0; BLOCK_BYTES_MAX + SLACK_BYTES];
        padded[..packed_bytes].copy_from_slice(packed.get(..packed_bytes)?);
        unpack(&padded, width, numbers);
    }
    Some(())
}

#[inline]
fn unpack(packed: &[u8], width: usize, numbers: &mut [u64]) {
    let mask = mask(width);
    let mut bit = 0;
    if width <= 56 {
        for number in numbers {
            let word = packed[bit / 8..]
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word));
            *number = word >> (bit % 8) & mask;
            bit += width;
        }
    } else {
        for number in numbers {
            let word = packed[bit / 8..]
                .first_chunk()
                .map_or(0, |word| u128::from_le_bytes(*word));
            *number = (word >> (bit % 8)) as u64 & mask;
            bit += width;
        }
    }
}

/// How long the block is that the bytes begin with, if it is as [`put_block`] writes these numbers.
pub(crate) fn canonical_block_bytes(bytes: &[u8], numbers: &[u64]) -> Result<usize, &'static str> {
    if numbers.is_empty() {
        return Ok(0);
    }
    let width = bit_width(numbers.iter().fold(0, |all, number| all | number));
    if bytes.first() != Some(&(width as u8)) {
        return Err("a block is wider than its largest number");
    }
    let bits = numbers.len() * width;
    let end = 1 + bits.div_ceil(8);
    match bits % 8 {
        0 => Ok(end),
        used if bytes.get(end - 1).is_some_and(|last| last >> used == 0) => Ok(end),
        _ => Err("a block ends with bits that are not zero"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_block_is_read_as_it_was_written(
            numbers in (0..=64u32).prop_flat_map(|width| {
                proptest::collection::vec(any::<u64>().prop_map(move |number| {
                    number.checked_shr(64 - width).unwrap_or(0)
                }), 0..=BLOCK)
            }),
            after in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = Vec::new();
            put_block(&mut bytes, &numbers);
            let length = bytes.len();
            bytes.extend_from_slice(&after);
            let mut read = vec![0; numbers.len()];
            prop_assert_eq!(read_block(&bytes, &mut read), Some(()));
            prop_assert_eq!(&read, &numbers);
            prop_assert_eq!(canonical_block_bytes(&bytes, &numbers), Ok(length));
            if length > 0 {
                prop_assert_eq!(read_block(&bytes[..length - 1], &mut read), None);
            }
        }
    }

    #[test]
    fn numbers_of_whole_bytes_are_read_at_the_end_too() {
        let mut bytes = vec![7];
        put_number(&mut bytes, 0x0102_0304, 4);
        assert_eq!(number_at(&bytes, 1, 4), 0x0102_0304);
        assert_eq!(number_at(&bytes, 3, 2), 0x0102);
        assert_eq!(number_at(&bytes, 9, 2), 0);
        assert_eq!([0, 255, 256, u64::MAX].map(byte_width), [1, 1, 2, 8]);
    }
}
