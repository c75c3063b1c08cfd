//! A record: one key and its value, as stored in a data file.
//!
//! ```text
//! offset  bytes  field
//!      0      4  checksum: low half of XXH3-64 of all that follows in the record
//!      4      4  value length in bytes (bits 0 to 26); bit 31: the value is stored as it is,
//!                though the version is compressed; bit 29 means that the record has a time;
//!                bits 27, 28 and 30 are zero, except for bit 30 in a patch: the key is deleted
//!      8      2  key length in bytes, less one
//!     10      k  key
//!   10+k      t  only if bit 29 is set, 8 bytes: the time of the value, in milliseconds since 1970
//! 10+k+t      v  value
//! ```
//!
//! All numbers are little-endian. Records follow each other without gaps; those of one bucket are searched in order, so
//! both lengths come first.

use std::ops::Range;

use fondaco_model::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::checksum::short_checksum;
use crate::compression::EncodedValue;

/// The bytes of a record before its key.
pub const RECORD_HEADER_BYTES: usize = 10;

const CHECKSUM_BYTES: usize = 4;
pub(crate) const TIME_BYTES: usize = 8;
const STORED_AS_IS: u32 = 1 << 31;
const DELETED: u32 = 1 << 30;
const DATED: u32 = 1 << 29;
const VALUE_LENGTH: u32 = (1 << 27) - 1;

/// The longest record, in bytes. Compression never makes a value longer.
pub(crate) const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + KEY_BYTES_MAX + TIME_BYTES + VALUE_BYTES_MAX;

const _: () = assert!(VALUE_BYTES_MAX <= VALUE_LENGTH as usize && KEY_BYTES_MAX - 1 <= u16::MAX as usize);

/// The two lengths of a record, parsed from its header and within their limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordHeader {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) stored_as_is: bool,
    /// Whether a time is between key and value.
    pub(crate) is_dated: bool,
}

impl RecordHeader {
    /// Parses a header; `None` if `bytes` is too short, or a length is over its limit.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; RECORD_HEADER_BYTES] = bytes.first_chunk()?;
        let word = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let parsed = Self {
            key_bytes: usize::from(u16::from_le_bytes([header[8], header[9]])) + 1,
            value_bytes: (word & VALUE_LENGTH) as usize,
            stored_as_is: word & STORED_AS_IS != 0,
            is_dated: word & DATED != 0,
        };
        let valid = word & !(STORED_AS_IS | DATED | VALUE_LENGTH) == 0 && parsed.value_bytes <= VALUE_BYTES_MAX;
        valid.then_some(parsed)
    }

    /// The length of the whole record.
    #[inline]
    pub(crate) fn record_bytes(self) -> usize {
        self.value_start() + self.value_bytes
    }

    /// The offset of the value in the record.
    #[inline]
    pub(crate) fn value_start(self) -> usize {
        RECORD_HEADER_BYTES + self.key_bytes + if self.is_dated { TIME_BYTES } else { 0 }
    }

    /// The time of a whole record with this header, if it has one.
    #[inline]
    pub(crate) fn time_ms(self, record: &[u8]) -> Option<u64> {
        if !self.is_dated {
            return None;
        }
        let time = record.get(RECORD_HEADER_BYTES + self.key_bytes..)?.first_chunk()?;
        Some(u64::from_le_bytes(*time))
    }
}

/// Appends one record to `out`. The caller must have checked the limits.
pub(crate) fn write_record(out: &mut Vec<u8>, key: &[u8], value: EncodedValue<'_>) {
    let flag = if value.stored_as_is { STORED_AS_IS } else { 0 };
    write_with(out, key, value.time_ms, value.bytes, flag);
}

/// Appends a record that deletes its key, for a patch.
pub(crate) fn write_deletion(out: &mut Vec<u8>, key: &[u8]) {
    write_with(out, key, None, b"", DELETED);
}

/// Clears the bit of a deletion in a record's header. Returns whether it was set.
pub(crate) fn take_deletion(header: &mut [u8]) -> bool {
    let [_, _, _, _, _, _, _, byte, ..] = header else {
        return false;
    };
    let flag = DELETED.to_le_bytes()[3];
    let is_deleted = *byte & flag != 0;
    *byte &= !flag;
    is_deleted
}

fn write_with(out: &mut Vec<u8>, key: &[u8], time_ms: Option<u64>, value: &[u8], flag: u32) {
    debug_assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && value.len() <= VALUE_BYTES_MAX);
    let start = out.len();
    out.reserve(RECORD_HEADER_BYTES + key.len() + TIME_BYTES + value.len());
    let flag = flag | if time_ms.is_some() { DATED } else { 0 };
    out.extend_from_slice(&[0; CHECKSUM_BYTES]);
    out.extend_from_slice(&(value.len() as u32 | flag).to_le_bytes());
    out.extend_from_slice(&((key.len() - 1) as u16).to_le_bytes());
    out.extend_from_slice(key);
    if let Some(time_ms) = time_ms {
        out.extend_from_slice(&time_ms.to_le_bytes());
    }
    out.extend_from_slice(value);
    let checksum = short_checksum(&out[start + CHECKSUM_BYTES..]);
    out[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether the checksum of a whole record matches.
#[inline]
pub(crate) fn record_is_intact(record: &[u8]) -> bool {
    match record.split_first_chunk() {
        Some((checksum, rest)) => u32::from_le_bytes(*checksum) == short_checksum(rest),
        None => false,
    }
}

/// The result of a search through the records of one bucket.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordSearch {
    /// The key's record was found and is intact.
    Found {
        /// The range of the value in the searched bytes.
        value: Range<usize>,
        /// Whether the value is stored uncompressed in a compressed version.
        stored_as_is: bool,
        /// The time of the value, if its record has one, in milliseconds since 1970.
        time_ms: Option<u64>,
    },
    /// No record of the bucket has the key, and all its records are intact.
    Absent,
    /// The bytes are corrupt.
    Corrupt(&'static str),
}

/// Searches the records of one whole bucket for a key.
///
/// The checksum of a found record is verified. Before an answer of "absent", the checksums of all records of the bucket
/// are verified: a changed length could have made the search skip the key.
#[inline]
pub fn search_records(bucket: &[u8], key: &[u8]) -> RecordSearch {
    let mut rest = bucket;
    while !rest.is_empty() {
        let Some(header) = RecordHeader::parse(rest) else {
            return RecordSearch::Corrupt("a record's header is damaged");
        };
        let Some((record, after)) = rest.split_at_checked(header.record_bytes()) else {
            return RecordSearch::Corrupt("a record extends past the end of its bucket");
        };
        let key_end = RECORD_HEADER_BYTES + header.key_bytes;
        if header.key_bytes == key.len() && &record[RECORD_HEADER_BYTES..key_end] == key {
            if !record_is_intact(record) {
                return RecordSearch::Corrupt("a record's checksum does not match");
            }
            let start = bucket.len() - rest.len();
            return RecordSearch::Found {
                value: start + header.value_start()..start + record.len(),
                stored_as_is: header.stored_as_is,
                time_ms: header.time_ms(record),
            };
        }
        rest = after;
    }
    if records_are_intact(bucket) {
        RecordSearch::Absent
    } else {
        RecordSearch::Corrupt("a record's checksum does not match")
    }
}

/// Whether these bytes are whole records, all of them intact.
pub(crate) fn records_are_intact(mut rest: &[u8]) -> bool {
    while let Some(header) = RecordHeader::parse(rest) {
        let Some((record, after)) = rest.split_at_checked(header.record_bytes()) else {
            return false;
        };
        if !record_is_intact(record) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in records {
            // Some have times.
            let time_ms = (value.len() % 2 == 1).then_some(value.len() as u64);
            let value = EncodedValue {
                bytes: value,
                stored_as_is: false,
                time_ms: None,
            };
            write_record(&mut bytes, key, value.at(time_ms));
        }
        bytes
    }

    fn records() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        let bytes = |length| prop::collection::vec(any::<u8>(), length);
        prop::collection::vec((bytes(1..20), bytes(0..40)), 0..6)
    }

    proptest! {
        #[test]
        fn each_record_is_found_and_no_other(records in records(), other in prop::collection::vec(any::<u8>(), 1..4)) {
            let bytes = bucket(&records);
            for (key, _) in &records {
                let first = records.iter().find(|(k, _)| k == key).unwrap();
                let RecordSearch::Found { value, time_ms, .. } = search_records(&bytes, key) else {
                    panic!("{key:?} is not found");
                };
                prop_assert_eq!(time_ms, (first.1.len() % 2 == 1).then_some(first.1.len() as u64));
                prop_assert_eq!(&bytes[value], &first.1[..]);
            }
            if records.iter().all(|(key, _)| *key != other) {
                prop_assert_eq!(search_records(&bytes, &other), RecordSearch::Absent);
            }
        }

        #[test]
        fn a_flipped_bit_never_changes_an_answer(records in records(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let intact = bucket(&records);
            prop_assume!(!intact.is_empty());
            let mut flipped = intact.clone();
            flipped[at.index(intact.len())] ^= 1 << bit;
            for (key, _) in &records {
                match search_records(&flipped, key) {
                    RecordSearch::Corrupt(_) => {}
                    RecordSearch::Absent => panic!("a changed bucket denies {key:?}"),
                    RecordSearch::Found { value, .. } => {
                        let first = records.iter().find(|(k, _)| k == key).unwrap();
                        prop_assert_eq!(&flipped[value], &first.1[..]);
                    }
                }
            }
            let absent = search_records(&flipped, b"a key that no bucket here holds");
            prop_assert!(matches!(absent, RecordSearch::Corrupt(_)));
        }

        #[test]
        fn any_bytes_can_be_searched(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            search_records(&bytes, b"key");
        }
    }
}
