//! The records of a version in a topic: their keys, and the JSON of start, index and end.

use std::collections::BTreeMap;

use fondaco_format::{Checksum, Manifest};
use fondaco_model::{PartitionCount, StoreName};
use serde::{Deserialize, Serialize};

/// The length of pieces that are sent, in bytes. Producers and brokers refuse a million by default.
pub(super) const PIECE_BYTES: usize = 512 << 10;

/// The longest pieces that are read, in bytes.
const PIECE_BYTES_MAX: u64 = 8 << 20;

/// The name under which the index is sent. No file of a version has it.
pub(super) const INDEX: &str = "index";

const START: &str = "start";
const END: &str = "end";

/// The prefix of all keys: the format.
const FORMAT: &str = "fondaco/1/";

/// The first record of a push.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    /// The store that the version was built for.
    pub(super) store: StoreName,
    /// The identity of the version.
    pub(super) version: Checksum,
    /// The number of partitions that it was built for.
    pub(super) partitions: PartitionCount,
    /// The number of records of the store.
    pub(super) records: u64,
    /// The number of files.
    pub(super) files: u64,
    /// The length of all files.
    pub(super) bytes: u64,
}

/// The last record of a push.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    /// The first one once more.
    #[serde(flatten)]
    pub(super) start: Start,
    /// The length of all pieces of a file but the last, in bytes.
    pub(super) piece_bytes: u64,
    /// Where the index is.
    pub(super) index: Extent,
    /// The checksum of the index.
    pub(super) index_checksum: Checksum,
}

/// The index of a push: where each of its files is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Index {
    /// Where each file is.
    pub(super) files: BTreeMap<String, Extent>,
    /// How many records each partition of the store has, without those that have none.
    pub(super) records: BTreeMap<u32, u64>,
}

/// Where the pieces of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent {
    /// The partition of the topic.
    pub(super) partition: i32,
    /// The offset of the first piece.
    pub(super) first: u64,
    /// The offset of the last piece.
    pub(super) last: u64,
    /// The length of the file.
    pub(super) bytes: u64,
}

impl End {
    /// Checks its fields; the error says what is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.piece_bytes {
            1..=PIECE_BYTES_MAX => Ok(()),
            bytes => Err(format!(
                "its end says that pieces have {bytes} bytes: they have at most {PIECE_BYTES_MAX}"
            )),
        }
    }
}

impl Extent {
    /// How many pieces of this length it has.
    pub(super) fn pieces(&self, piece_bytes: u64) -> u64 {
        self.bytes.div_ceil(piece_bytes)
    }

    /// Checks its fields; the error says what is wrong.
    pub(super) fn check(&self, file: &str, piece_bytes: u64) -> Result<(), String> {
        let room = self.last.checked_sub(self.first);
        let pieces = self.pieces(piece_bytes);
        let has_room = room.is_some_and(|room| room >= pieces.saturating_sub(1));
        match has_room && self.last < i64::MAX as u64 && self.partition >= 0 {
            true => Ok(()),
            false => Err(format!(
                "its index says that the {pieces} pieces of {file:?} are in partition {} at the offsets {} to {}",
                self.partition, self.first, self.last
            )),
        }
    }
}

/// The keys of a push.
#[derive(Debug, Clone)]
pub(super) struct Keys(String);

impl Keys {
    /// Those of a new push of a version. A version may be pushed again.
    pub(super) fn new(version: Checksum, unix_ns: u128) -> Self {
        Self(format!("{FORMAT}{version}-{unix_ns:x}/"))
    }

    /// Those of the push that has this key at its end.
    pub(super) fn of_end(key: &[u8]) -> Option<Self> {
        let push = str::from_utf8(key).ok()?.strip_suffix(END)?;
        let name = push.strip_prefix(FORMAT)?.strip_suffix('/')?;
        (!name.is_empty() && !name.contains('/')).then(|| Self(push.to_owned()))
    }

    pub(super) fn start(&self) -> String {
        format!("{}{START}", self.0)
    }

    pub(super) fn end(&self) -> String {
        format!("{}{END}", self.0)
    }

    pub(super) fn piece(&self, file: &str, piece: u64) -> String {
        format!("{}{file}/{piece}", self.0)
    }
}

/// How many records each partition has by its chunks.
pub(super) fn records_of(manifest: &Manifest) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for chunk in &manifest.chunks {
        *counts.entry(chunk.partition.get()).or_default() += chunk.records;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_an_end_is_one() {
        let keys = Keys::new(Checksum::of(b"x"), 7);
        let found = Keys::of_end(keys.end().as_bytes()).unwrap();
        assert_eq!(found.piece("a", 3), keys.piece("a", 3));
        for other in [
            &keys.start(),
            &keys.piece("a", 0),
            "fondaco/1//end",
            "fondaco/1/end",
            "end",
            "fondaco/2/a/end",
        ] {
            assert!(Keys::of_end(other.as_bytes()).is_none(), "{other}");
        }
        assert!(Keys::of_end(b"\xff/end").is_none());
    }

    #[test]
    fn extents_have_room_for_their_pieces() {
        let extent = |first, last, bytes| Extent {
            partition: 0,
            first,
            last,
            bytes,
        };
        for good in [extent(5, 5, 10), extent(5, 6, 11), extent(5, 90, 20), extent(0, 0, 0)] {
            good.check("a", 10).unwrap();
        }
        for bad in [
            extent(5, 5, 11),
            extent(5, 4, 1),
            extent(0, u64::MAX, 1),
            extent(0, 9, u64::MAX),
            Extent {
                partition: -1,
                ..extent(0, 0, 1)
            },
        ] {
            let error = bad.check("a", 10).unwrap_err();
            assert!(error.contains("\"a\""), "{error}");
        }
    }
}
