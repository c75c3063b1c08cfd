//! Numbers without the bits that most of them lack, and numbers of a few whole bytes.
//!
//! ```text
//! block of n numbers   width (1 byte): bits 0 to 6: bits of a low part, 0 to 64; bit 7: exceptions follow;
//!                      n low parts, packed; exceptions; nothing at all where n is 0
//! exceptions           count (1 byte), place of each in the block (1 byte each, ascending),
//!                      bits of a high part (1 byte), high parts, packed
//! packed               numbers of a fixed width, lowest bits first, without gaps; the last byte is filled with zeros
//! ```
//! Exceptions are the numbers that have more bits than the low part; their high part is the rest. The width is the one that
//! makes the block shortest, the largest of several. Eight numbers of a width have as many
//! bytes as one has bits. There is code for each width, in which all shifts and masks are constants.

/// The most numbers of a block.
pub(crate) const BLOCK: usize = 128;
const HAS_EXCEPTIONS: u8 = 0x80;
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

/// How a block is written.
struct Layout {
    width: usize,
    exceptions: usize,
    high_width: usize,
}

impl Layout {
    fn shortest(numbers: &[u64]) -> Self {
        let mut of_width = [0; 65];
        for &number in numbers {
            of_width[bit_width(number)] += 1;
        }
        let widest = of_width.iter().rposition(|&count| count > 0).unwrap_or(0);
        let mut best = Self {
            width: widest,
            exceptions: 0,
            high_width: 0,
        };
        let mut best_bytes = (numbers.len() * widest).div_ceil(8);
        let mut exceptions = 0;
        for width in (0..widest).rev() {
            exceptions += of_width[width + 1];
            let high_width = widest - width;
            let low_bytes = (numbers.len() * width).div_ceil(8);
            let bytes = low_bytes + 2 + exceptions + (exceptions * high_width).div_ceil(8);
            if bytes < best_bytes {
                best_bytes = bytes;
                best = Self {
                    width,
                    exceptions,
                    high_width,
                };
            }
        }
        best
    }
}

/// Appends a block.
pub(crate) fn put_block(out: &mut Vec<u8>, numbers: &[u64]) {
    if numbers.is_empty() {
        return;
    }
    let layout = Layout::shortest(numbers);
    let low = mask(layout.width);
    if layout.exceptions == 0 {
        out.push(layout.width as u8);
        pack(out, numbers.iter().copied(), layout.width);
        return;
    }
    out.push(layout.width as u8 | HAS_EXCEPTIONS);
    pack(out, numbers.iter().map(|number| number & low), layout.width);
    out.push(layout.exceptions as u8);
    let exceptions = (0u8..).zip(numbers).filter(|(_, number)| **number > low);
    out.extend(exceptions.clone().map(|(place, _)| place));
    out.push(layout.high_width as u8);
    pack(
        out,
        exceptions.map(|(_, number)| number >> layout.width),
        layout.high_width,
    );
}

fn pack(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>, width: usize) {
    let (mut pending, mut pending_bits) = (0u128, 0);
    for number in numbers {
        pending |= u128::from(number) << pending_bits;
        pending_bits += width;
        if pending_bits >= 64 {
            out.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            pending_bits -= 64;
        }
    }
    out.extend_from_slice(&pending.to_le_bytes()[..pending_bits.div_ceil(8)]);
}

/// Reads the block that the bytes begin with; others may follow it. `None` if they end before it does, or if a width or
/// a place is impossible.
#[inline]
pub(crate) fn read_block(bytes: &[u8], numbers: &mut [u64]) -> Option<()> {
    if numbers.is_empty() {
        return Some(());
    }
    let (&head, packed) = bytes.split_first()?;
    let width = usize::from(head & !HAS_EXCEPTIONS);
    unpack(packed, width, numbers)?;
    match head & HAS_EXCEPTIONS {
        0 => Some(()),
        _ => add_exceptions(&packed[(numbers.len() * width).div_ceil(8)..], width, numbers),
    }
}

fn add_exceptions(bytes: &[u8], width: usize, numbers: &mut [u64]) -> Option<()> {
    let (&count, rest) = bytes.split_first()?;
    let (places, rest) = rest.split_at_checked(usize::from(count))?;
    let (&high_width, packed) = rest.split_first()?;
    let mut high_parts = [0; BLOCK];
    let high_parts = high_parts.get_mut(..places.len())?;
    unpack(packed, usize::from(high_width), high_parts)?;
    for (&place, high) in places.iter().zip(high_parts) {
        let number = numbers.get_mut(usize::from(place))?;
        *number |= high.checked_shl(width as u32)?;
    }
    Some(())
}

/// `None` if there are fewer bytes than these numbers have, or the width is above 64.
#[inline]
fn unpack(packed: &[u8], width: usize, numbers: &mut [u64]) -> Option<()> {
    if width > 64 || packed.len() < (numbers.len() * width).div_ceil(8) {
        return None;
    }
    if width == 0 {
        numbers.fill(0);
        return Some(());
    }
    let (groups, rest) = numbers.as_chunks_mut();
    let rest_at = groups.len() * width;
    unpack_groups(&packed[..rest_at], width, groups);
    if !rest.is_empty() {
        let mut padded = [0; 64];
        let rest_bytes = (rest.len() * width).div_ceil(8);
        padded[..rest_bytes].copy_from_slice(&packed[rest_at..rest_at + rest_bytes]);
        let mut last = [[0; 8]];
        unpack_groups(&padded[..width], width, &mut last);
        rest.copy_from_slice(&last[0][..rest.len()]);
    }
    Some(())
}

/// Calls the code for a width.
fn unpack_groups(packed: &[u8], width: usize, groups: &mut [[u64; 8]]) {
    macro_rules! of_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack_groups_of::<$width>(packed, groups),)*
                _ => unreachable!("{width} bits"),
            }
        };
    }
    of_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64)
}

fn unpack_groups_of<const WIDTH: usize>(packed: &[u8], groups: &mut [[u64; 8]]) {
    for (group, bytes) in groups.iter_mut().zip(packed.as_chunks::<WIDTH>().0) {
        for (index, number) in group.iter_mut().enumerate() {
            *number = number_of::<WIDTH>(bytes, index);
        }
    }
}

/// One of eight numbers.
#[inline(always)]
fn number_of<const WIDTH: usize>(bytes: &[u8; WIDTH], index: usize) -> u64 {
    let bit = index * WIDTH;
    // A load of eight bytes that begins no later than the number, and ends no later than the bytes.
    let from = (bit / 8).min(WIDTH.saturating_sub(8));
    let shift = bit - from * 8;
    let low = number_at(bytes, from, 8) >> shift;
    let high = match shift + WIDTH > 64 {
        true => u64::from(bytes[from + 8]) << (64 - shift),
        false => 0,
    };
    (low | high) & mask(WIDTH)
}

/// How long the block is that the bytes begin with, if it is as [`put_block`] writes these numbers. `scratch` is to be
/// used again.
pub(crate) fn canonical_block_bytes(bytes: &[u8], numbers: &[u64], scratch: &mut Vec<u8>) -> Option<usize> {
    scratch.clear();
    put_block(scratch, numbers);
    bytes.starts_with(scratch).then_some(scratch.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_block_is_read_as_it_was_written(
            numbers in (0..=64u32, 0..=64u32).prop_flat_map(|(width, other)| {
                let width = prop_oneof![9 => Just(width), 1 => Just(other)];
                let number = (any::<u64>(), width).prop_map(|(number, width)| number.checked_shr(64 - width).unwrap_or(0));
                proptest::collection::vec(number, 0..=BLOCK)
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
            prop_assert_eq!(canonical_block_bytes(&bytes, &numbers, &mut Vec::new()), Some(length));
            if length > 0 {
                prop_assert_eq!(read_block(&bytes[..length - 1], &mut read), None);
            }
        }
    }

    #[test]
    fn a_few_large_numbers_do_not_widen_the_others() {
        let mut numbers = [3; BLOCK];
        numbers[5] = 1 << 40;
        numbers[127] = u64::MAX;
        let mut bytes = Vec::new();
        put_block(&mut bytes, &numbers);
        // Width, two bits each, two places with their count, 62 bits each with their width.
        assert_eq!(bytes.len(), 1 + 32 + 3 + 17);
        let mut read = [0; BLOCK];
        assert_eq!((read_block(&bytes, &mut read), read), (Some(()), numbers));
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
