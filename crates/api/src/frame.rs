//! Keys with their records, one after the other: the content of pages of a partition, of requests to merge records, and
//! of backup files.
//!
//! ```text
//! frame    length of the key (u32) ++ length of the record (u32) ++ key ++ record
//! ```
//!
//! Numbers are little-endian. Records are in the model's encoding, which has a checksum; code that moves or stores
//! frames protects the rest.

use std::io::{self, Read, Write};

use fondaco_model::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// How long a record may be, in bytes: it may have several of the largest values. It is the limit of engines.
pub const RECORD_BYTES_MAX: usize = 4 * VALUE_BYTES_MAX;

/// How long a frame may be, in bytes.
pub const FRAME_BYTES_MAX: usize = HEAD_BYTES + KEY_BYTES_MAX + RECORD_BYTES_MAX;

const HEAD_BYTES: usize = 8;

/// The header of a page with the position of the next one, to be given as `after`; a last page has none.
pub const NEXT_HEADER: &str = "fondaco-next";

/// In a page of changes of a stream: the first byte of the record of a key that has a value, which follows; any other
/// is of a deletion.
pub const CHANGED_TO_VALUE: u8 = 1;
/// The same before a value with its time in front of it: 8 bytes, little-endian, in milliseconds since 1970.
pub const CHANGED_TO_DATED: u8 = 2;

/// A key with its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The key, without the name of the store.
    pub key: Vec<u8>,
    /// The record, as [`Record::encode`](fondaco_model::versioned::Record::encode) writes it.
    pub record: Vec<u8>,
}

impl Frame {
    /// How many bytes the frame of this key and record has.
    pub fn bytes_of(key: &[u8], record: &[u8]) -> usize {
        HEAD_BYTES + key.len() + record.len()
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write(key: &[u8], record: &[u8], out: &mut impl Write) -> io::Result<()> {
        debug_assert!(key.len() <= KEY_BYTES_MAX && record.len() <= RECORD_BYTES_MAX);
        out.write_all(&(key.len() as u32).to_le_bytes())?;
        out.write_all(&(record.len() as u32).to_le_bytes())?;
        out.write_all(key)?;
        out.write_all(record)
    }

    /// Reads the next frame; `None` at the end.
    ///
    /// # Errors
    /// Errors of `input`, an end in the middle of a frame, or lengths that are too large.
    pub fn read(input: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        if input.read(&mut head[..1])? == 0 {
            return Ok(None);
        }
        input.read_exact(&mut head[1..])?;
        let [a, b, c, d, e, f, g, h] = head;
        let key_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let record_bytes = u32::from_le_bytes([e, f, g, h]) as usize;
        if !(1..=KEY_BYTES_MAX).contains(&key_bytes) || record_bytes > RECORD_BYTES_MAX {
            let message =
                format!("a key of {key_bytes} bytes with a record of {record_bytes} bytes is longer than any frame");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let (mut key, mut record) = (vec![0; key_bytes], vec![0; record_bytes]);
        input.read_exact(&mut key)?;
        input.read_exact(&mut record)?;
        Ok(Some(Self { key, record }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::write(b"one", b"first", &mut bytes).unwrap();
        Frame::write(b"two", b"", &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn written_frames_are_read_back() {
        let bytes = two();
        assert_eq!(
            bytes.len(),
            Frame::bytes_of(b"one", b"first") + Frame::bytes_of(b"two", b"")
        );
        let mut input = &bytes[..];
        let first = Frame::read(&mut input).unwrap().unwrap();
        assert_eq!((&first.key[..], &first.record[..]), (&b"one"[..], &b"first"[..]));
        let second = Frame::read(&mut input).unwrap().unwrap();
        assert_eq!((&second.key[..], &second.record[..]), (&b"two"[..], &b""[..]));
        assert_eq!(Frame::read(&mut input).unwrap(), None);
    }

    #[test]
    fn an_end_within_a_frame_is_an_error() {
        let bytes = two();
        let whole = Frame::bytes_of(b"one", b"first");
        for end in 1..whole {
            let error = Frame::read(&mut &bytes[..end]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        }
    }

    #[test]
    fn too_large_lengths_are_refused_before_memory_is_allocated() {
        for head in [[0; 8], [255; 8], [1, 0, 0, 0, 255, 255, 255, 255]] {
            let error = Frame::read(&mut &head[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
