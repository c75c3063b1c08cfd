//! The format of batches and their frames in a segment.
//!
//! ```text
//! batch   length after the head (u32), count of frames (u32), number (u64), checksum (u32), frame…, 0xFF
//! frame   checksum (u64), table (u32), length of the value or `since` (u32), length of the key (u16), kind (u8),
//!         0 (u8), key, value                                                        integers are little-endian
//! ```
//!
//! The checksum of a batch is the lower half of the XXH3 of the bytes before it, seeded with the identity of the log.
//! The checksum of a frame is the XXH3 of the rest of the frame. The numbers of batches increase. A batch counts only
//! if it is complete: if the process ended during a write, the segment ends with the beginning of a batch, followed
//! only by zeros.
//!
//! A damaged batch does not hide the batches after it: recovery searches for the next head with a valid checksum and
//! number. Because of the seed, a value that looks like a batch, which a client can write, is not mistaken for one.

use memchr::memmem;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The length of a frame without key and value.
pub(super) const FRAME_HEAD_BYTES: usize = 20;
/// The length of the head of a batch.
pub(super) const BATCH_HEAD_BYTES: usize = 20;
/// The last byte of a batch: not zero, since unwritten parts of a file are zeros.
const END: u8 = 0xFF;
/// The longest batch, in bytes: offsets within segments have 32 bits.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 30;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) table: u32,
    pub(super) key: &'a [u8],
    pub(super) content: Content<'a>,
}

/// The state of the key, according to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// Its value.
    Value(&'a [u8]),
    /// A tombstone: the key has no value, and frames of the key in segments up to this one are obsolete.
    NoneSince(u32),
}

/// The length of the frame of a value.
pub(super) fn frame_bytes(key_bytes: usize, value_bytes: u32) -> u64 {
    (FRAME_HEAD_BYTES + key_bytes) as u64 + u64::from(value_bytes)
}

impl Frame<'_> {
    pub(super) fn bytes(&self) -> usize {
        FRAME_HEAD_BYTES + self.key.len() + self.content.value_bytes()
    }
}

impl Content<'_> {
    fn value_bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.len(),
            Self::NoneSince(_) => 0,
        }
    }
}

/// A batch under construction, in a reusable buffer.
#[derive(Debug, Default)]
pub(super) struct BatchBuffer {
    bytes: Vec<u8>,
    frames: u32,
}

impl BatchBuffer {
    /// Clears the batch, and frees memory if the last one was unusually long.
    pub(super) fn clear(&mut self) {
        const KEPT_BYTES: usize = 4 << 20;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.bytes.resize(BATCH_HEAD_BYTES, 0);
        self.frames = 0;
    }

    /// Appends a frame. Returns its offset in the batch.
    pub(super) fn push(&mut self, frame: &Frame<'_>) -> u32 {
        let start = self.bytes.len();
        let (kind, number, value) = match frame.content {
            Content::Value(value) => (PUT, value.len() as u32, value),
            Content::NoneSince(segment) => (DELETE, segment, &[][..]),
        };
        let mut head = [0; FRAME_HEAD_BYTES];
        head[8..12].copy_from_slice(&frame.table.to_le_bytes());
        head[12..16].copy_from_slice(&number.to_le_bytes());
        head[16..18].copy_from_slice(&(frame.key.len() as u16).to_le_bytes());
        head[18] = kind;
        self.bytes.reserve(frame.bytes());
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(frame.key);
        self.bytes.extend_from_slice(value);
        let checksum = xxh3_64(&self.bytes[start + 8..]);
        self.bytes[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
        self.frames += 1;
        start as u32
    }

    /// The length of the finished batch.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Whether the batch has no frames.
    pub(super) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Finishes the batch with its number and the identity of the log. Returns the bytes to write.
    pub(super) fn finish(&mut self, number: u64, identity: u64) -> &[u8] {
        self.bytes.push(END);
        let length = (self.bytes.len() - BATCH_HEAD_BYTES) as u32;
        self.bytes[0..4].copy_from_slice(&length.to_le_bytes());
        self.bytes[4..8].copy_from_slice(&self.frames.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let checksum = xxh3_64_with_seed(&self.bytes[..16], identity) as u32;
        self.bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }
}

/// The frame at the beginning of these bytes, if it is valid.
pub(super) fn read_frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>()?;
    let number = number_at(head, 12)?;
    let key_bytes = usize::from(u16::from_le_bytes([head[16], head[17]]));
    let (key, rest) = rest.split_at_checked(key_bytes)?;
    let content = match (head[18], head[19]) {
        (PUT, 0) => Content::Value(rest.get(..number as usize)?),
        (DELETE, 0) => Content::NoneSince(number),
        _ => return None,
    };
    let frame = Frame {
        table: number_at(head, 8)?,
        key,
        content,
    };
    let checksum = u64::from_le_bytes(*head.first_chunk()?);
    (xxh3_64(&bytes[8..frame.bytes()]) == checksum).then_some(frame)
}

/// A valid batch.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) number: u64,
    /// The frames, each with its offset in the batch.
    pub(super) frames: Vec<(u32, Frame<'a>)>,
    pub(super) bytes: usize,
}

/// The content of a segment at an offset.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Batch(Batch<'a>),
    /// Nothing more, except perhaps the beginning of a batch whose write was interrupted.
    End,
    /// Damaged data. The next batch begins at least this many bytes later.
    Damage(usize),
}

/// Reads the batch at the beginning of these bytes, which are the rest of a segment of the log with this identity.
pub(super) fn read_batch(bytes: &[u8], identity: u64) -> Found<'_> {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let nothing_but = |written: usize| match is_zero(&bytes[written.min(bytes.len())..]) {
        true => Found::End,
        false => Found::Damage(1),
    };
    let Some((length, count, number)) = read_batch_head(bytes, identity) else {
        return nothing_but(BATCH_HEAD_BYTES);
    };
    let end = BATCH_HEAD_BYTES + length;
    match bytes.get(end - 1) {
        Some(&END) => {}
        Some(0) | None => return nothing_but(end),
        Some(_) => return Found::Damage(end),
    }
    let mut frames = Vec::new();
    let mut at = BATCH_HEAD_BYTES;
    for _ in 0..count {
        let Some(frame) = bytes.get(at..end - 1).and_then(read_frame) else {
            return Found::Damage(end);
        };
        frames.push((at as u32, frame));
        at += frame.bytes();
    }
    match at == end - 1 {
        true => Found::Batch(Batch {
            number,
            frames,
            bytes: end,
        }),
        false => Found::Damage(end),
    }
}

/// The offset of the next valid batch of a segment at or after `from`. Its number is at least `lowest`, the number of a
/// batch of the same segment.
pub(super) fn find_batch(bytes: &[u8], from: usize, lowest: u64, identity: u64) -> Option<usize> {
    // The upper half of a batch's number is the number of its segment, at this offset in the head.
    const SEGMENT_AT: usize = 12;
    let segment = ((lowest >> 32) as u32).to_le_bytes();
    let finder = memmem::Finder::new(&segment);
    // Matches may overlap.
    let next = |from: usize| Some(from + finder.find(bytes.get(from + SEGMENT_AT..)?)?);
    std::iter::successors(next(from), |&start| next(start + 1)).find(|&start| {
        let is_head = read_batch_head(&bytes[start..], identity).is_some_and(|(.., number)| number >= lowest);
        is_head && matches!(read_batch(&bytes[start..], identity), Found::Batch(batch) if batch.number >> 32 == lowest >> 32)
    })
}

/// The length after the head, the count of frames, and the number.
fn read_batch_head(bytes: &[u8], identity: u64) -> Option<(usize, u32, u64)> {
    let (head, _) = bytes.split_first_chunk::<BATCH_HEAD_BYTES>()?;
    let (said, checksum) = head.split_last_chunk::<4>()?;
    if xxh3_64_with_seed(said, identity) as u32 != u32::from_le_bytes(*checksum) {
        return None;
    }
    let length = number_at(head, 0)? as usize;
    let number = u64::from_le_bytes(*said.last_chunk()?);
    (1..=BATCH_BYTES_MAX)
        .contains(&length)
        .then_some((length, number_at(head, 4)?, number))
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64, value: &[u8]) -> Vec<u8> {
        let mut buffer = BatchBuffer::default();
        buffer.clear();
        for content in [Content::Value(value), Content::NoneSince(7)] {
            let (table, key) = (3, &b"key"[..]);
            buffer.push(&Frame { table, key, content });
        }
        buffer.finish(number, IDENTITY).to_vec()
    }

    const IDENTITY: u64 = 0x1234;

    fn read(bytes: &[u8]) -> Found<'_> {
        read_batch(bytes, IDENTITY)
    }

    #[test]
    fn an_encoded_batch_is_decoded_again() {
        let bytes = [batch(5, b"value"), batch(6, b"")].concat();
        let Found::Batch(first) = read(&bytes) else {
            panic!("no batch")
        };
        assert_eq!((first.number, first.frames.len()), (5, 2));
        assert_eq!(first.frames[0].1.content, Content::Value(b"value"));
        assert_eq!(first.frames[1].1.content, Content::NoneSince(7));
        let at = first.frames[1].0 as usize;
        assert_eq!(read_frame(&bytes[at..]), Some(first.frames[1].1));
        let Found::Batch(second) = read(&bytes[first.bytes..]) else {
            panic!("no batch")
        };
        assert_eq!(second.number, 6);
    }

    #[test]
    fn a_partial_batch_before_zeros_is_the_end() {
        let whole = batch(1, &[1; 50]);
        for length in 0..whole.len() {
            for zeros in [0, 1, 500] {
                let torn = [&whole[..length], &vec![0; zeros]].concat();
                assert!(matches!(read(&torn), Found::End), "{length} and {zeros} zeros");
            }
            let followed = [&whole[..length], &[0; 100], &batch(2, b"")].concat();
            assert!(matches!(read(&followed), Found::Damage(_)), "{length}");
        }
    }

    #[test]
    fn every_bit_that_changes_is_found() {
        let whole = batch(1, b"value");
        for behind in [&[][..], &[0; 64], &batch(2, b"")] {
            for bit in 0..whole.len() * 8 {
                let mut flipped = [&whole, behind].concat();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    matches!(read(&flipped), Found::Damage(_)),
                    "bit {bit} of {}",
                    flipped.len()
                );
            }
        }
    }

    #[test]
    fn a_damaged_batch_does_not_hide_later_batches() {
        let number = |batch: u64| 5 << 32 | batch;
        // A value that looks like a batch of the segment, as a client could write it without knowing the identity.
        let forged = {
            let mut buffer = BatchBuffer::default();
            buffer.clear();
            buffer.finish(number(2), 0).to_vec()
        };
        let (first, second) = (batch(number(1), &forged), batch(number(2), b"second"));
        let third = batch(number(3), b"third");
        for bit in 0..first.len() * 8 {
            let mut bytes = [&first[..], &second, &third].concat();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Found::Damage(skipped) = read(&bytes) else {
                panic!("bit {bit} is not noticed");
            };
            assert!(skipped <= first.len());
            assert_eq!(
                find_batch(&bytes, skipped, number(2), IDENTITY),
                Some(first.len()),
                "bit {bit}"
            );
            // A batch with the number of an earlier one is not mistaken for the next one.
            let last = first.len() + second.len();
            assert_eq!(
                find_batch(&bytes, skipped, number(3), IDENTITY),
                Some(last),
                "bit {bit}"
            );
        }
        let other_segment = [&first[..10], &batch(6 << 32, b"stale")].concat();
        assert_eq!(find_batch(&other_segment, 1, number(1), IDENTITY), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            read_frame(&bytes);
            read(&bytes);
            read(&[&batch(1, b"value")[..30], &bytes].concat());
            find_batch(&bytes, 0, 1 << 32, IDENTITY);
        }
    }
}
