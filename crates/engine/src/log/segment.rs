//! The files of the log: segments, which are only appended to, and beside each that is full the keys in it.
//!
//! ```text
//! NUMBER.segment   "fondseg2", number (u64), identity of the log (u64), length of the segment before it (u32), count of
//!                  batches in that (u32), checksum (u64), batch…, zeros or nothing
//! NUMBER.keys      "fondkey2", number (u64), length of the segment (u32), count of batches in it (u32), key…,
//!                  checksum (u64)
//! key              table (u32), place of its frame (u32), length of the value, or since when (u32),
//!                  length of the key (u16), kind (u8), 0 (u8), key                  integers are little-endian
//! ```
//!
//! A checksum is the xxh3 of all that stands before it in the head, or in the file. What the segment before it ended like is
//! written when the first batch is: zeros say nothing about it.
//!
//! A file of keys says in little what its segment says in
//! much: it is made when the segment is on the disk, and where there is none, or a damaged one, the segment is read.
//! It is deleted before its segment, so that one without a segment is a loss.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hashbrown::HashTable;
use rustix::fs::{FallocateFlags, fallocate};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::frame::{Content, Frame};
use crate::error::EngineError;
use crate::failure;
use crate::readable::{self, Readable};

const SEGMENT_MAGIC: &[u8; 8] = b"fondseg2";
const KEYS_MAGIC: &[u8; 8] = b"fondkey2";
/// What stands before the first batch.
pub(super) const SEGMENT_HEAD_BYTES: u32 = 40;
const KEYS_HEAD_BYTES: usize = 24;
const KEY_HEAD_BYTES: usize = 16;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// How a segment ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) length: u32,
    pub(super) batches: u32,
}

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// It belongs to the log of this identity. How the segment before it ended, if it says so.
    Whole(u64, Option<Ended>),
    /// It is not what was written.
    Damaged,
}

/// A segment that is open. Its file can be read as long as somebody has this, also when it was deleted.
#[derive(Debug)]
pub(super) struct Segment {
    number: u32,
    path: PathBuf,
    file: File,
}

/// What a file of keys says of one frame: its place, and what it says of its key, without the value itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named<'a> {
    pub(super) table: u32,
    pub(super) offset: u32,
    pub(super) key: &'a [u8],
    pub(super) says: Says,
}

/// What a frame says, in little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// A value of so many bytes.
    ValueOf(u32),
    /// See [`Content::NoneSince`].
    NoneSince(u32),
}

impl Says {
    fn since(self) -> Option<u32> {
        match self {
            Self::ValueOf(_) => None,
            Self::NoneSince(segment) => Some(segment),
        }
    }
}

impl From<Content<'_>> for Says {
    fn from(content: Content<'_>) -> Self {
        match content {
            Content::Value(value) => Self::ValueOf(value.len() as u32),
            Content::NoneSince(segment) => Self::NoneSince(segment),
        }
    }
}

impl Segment {
    /// Makes a segment of the log of an identity, with room for so many bytes if the disk can tell.
    pub(super) fn create(dir: &Path, number: u32, identity: u64, bytes: u64) -> Result<Self, EngineError> {
        let path = dir.join(format!("{number:010}.segment"));
        let failed = |error| failure::io("create", &path, error);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(failed)?;
        let head = head_of(number, identity, Ended::default());
        let made = file.write_all_at(&head, 0).and_then(|()| {
            // Only so that it lies together, and that syncing it need not note its length: without, it grows.
            let _ = fallocate(&file, FallocateFlags::empty(), 0, bytes);
            fondaco_durable::sync_directory(dir)
        });
        if let Err(error) = made {
            let _ = fs::remove_file(&path);
            return Err(failed(error));
        }
        Ok(Self { number, path, file })
    }

    /// Notes how the segment before it ended, before anything is written to it.
    pub(super) fn begin(&self, identity: u64, before: Ended) -> Result<(), EngineError> {
        self.write_at(&head_of(self.number, identity, before), 0)
    }

    /// Opens one that is there.
    pub(super) fn open(path: &Path, number: u32) -> Result<Self, EngineError> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|error| failure::io("open", path, error))?;
        let path = path.to_owned();
        Ok(Self { number, path, file })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u32) -> Result<(), EngineError> {
        let written = self.file.write_all_at(bytes, offset.into());
        written.map_err(|error| failure::io("write to", &self.path, error))
    }

    /// So many bytes from a place on.
    pub(super) fn read_at(&self, offset: u32, length: usize) -> Result<Vec<u8>, EngineError> {
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, offset.into());
        read.map_err(|error| failure::reading(&self.path, error))?;
        Ok(bytes)
    }

    /// All of it, as the disk has it, and not what the kernel remembers of it: that may be what it could not write.
    pub(super) fn read_all(&self) -> Result<Readable, EngineError> {
        readable::read(&self.path).map_err(|error| failure::reading(&self.path, error))
    }

    /// How long its file is.
    pub(super) fn file_bytes(&self) -> Result<u64, EngineError> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|error| failure::io("look at", &self.path, error))?
            .len())
    }

    /// What it says of itself and of the segment before it.
    pub(super) fn head(&self) -> Result<Head, EngineError> {
        let mut bytes = [0; SEGMENT_HEAD_BYTES as usize];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => self.head_in(&bytes),
            Err(error) if failure::is_damage(&error) => Ok(Head::Damaged),
            Err(error) => Err(failure::reading(&self.path, error)),
        }
    }

    /// The same, of what was read of it.
    ///
    /// # Errors
    /// It is of another version: then nothing in it is judged, let alone changed.
    pub(super) fn head_in(&self, bytes: &[u8]) -> Result<Head, EngineError> {
        if let Some(version) = bytes.get(..SEGMENT_MAGIC.len())
            && version[..7] == SEGMENT_MAGIC[..7]
            && version != SEGMENT_MAGIC
            && version[7].is_ascii_digit()
        {
            let reason = "it is a segment of another version of the format";
            return Err(failure::corrupt(&self.path, reason));
        }
        Ok(parse_head(bytes, self.number).unwrap_or(Head::Damaged))
    }

    /// Keeps a copy of it under another name, also when it is deleted.
    pub(super) fn set_aside(&self) -> Result<(), EngineError> {
        let aside = self.path.with_extension("segment-damaged");
        // A second name for the same file, where the file system can: nothing is written to it any more.
        let linked = match fs::hard_link(&self.path, &aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(_) => fs::copy(&self.path, &aside).and_then(|_| File::open(&aside)?.sync_all()),
            Ok(()) => Ok(()),
        };
        linked.map_err(|error| failure::io("keep a copy of", &self.path, error))
    }

    /// Gives back the room behind its last batch.
    pub(super) fn cut(&self, length: u32) -> Result<(), EngineError> {
        let cut = self.file.set_len(length.into());
        cut.map_err(|error| failure::io("cut", &self.path, error))
    }

    /// Waits until what was written is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Deletes the files. Whoever has it open reads on.
    pub(super) fn delete(&self) -> Result<(), EngineError> {
        for path in [keys_path(&self.path), self.path.clone()] {
            fondaco_durable::remove_file(&path).map_err(|error| failure::io("delete", &path, error))?;
        }
        Ok(())
    }
}

/// What a segment begins with.
fn head_of(number: u32, identity: u64, before: Ended) -> [u8; SEGMENT_HEAD_BYTES as usize] {
    let mut head = [0; SEGMENT_HEAD_BYTES as usize];
    head[..8].copy_from_slice(SEGMENT_MAGIC);
    head[8..16].copy_from_slice(&u64::from(number).to_le_bytes());
    head[16..24].copy_from_slice(&identity.to_le_bytes());
    head[24..28].copy_from_slice(&before.length.to_le_bytes());
    head[28..32].copy_from_slice(&before.batches.to_le_bytes());
    let checksum = xxh3_64(&head[..32]);
    head[32..].copy_from_slice(&checksum.to_le_bytes());
    head
}

fn parse_head(bytes: &[u8], number: u32) -> Option<Head> {
    let head = bytes.first_chunk::<{ SEGMENT_HEAD_BYTES as usize }>()?;
    let identity = u64::from_le_bytes(*head[16..].first_chunk()?);
    let before = Ended {
        length: u32::from_le_bytes(*head[24..].first_chunk()?),
        batches: u32::from_le_bytes(*head[28..].first_chunk()?),
    };
    let is_whole = *head == head_of(number, identity, before);
    is_whole.then_some(Head::Whole(identity, (before != Ended::default()).then_some(before)))
}

/// The file of keys of the segment at a path.
pub(super) fn keys_path(segment: &Path) -> PathBuf {
    segment.with_extension("keys")
}

/// The keys of a segment, as they are gathered while it is written.
#[derive(Debug)]
pub(super) struct Keys {
    bytes: Vec<u8>,
}

impl Keys {
    pub(super) fn of(segment: u32) -> Self {
        let mut bytes = Vec::with_capacity(KEYS_HEAD_BYTES);
        bytes.extend_from_slice(KEYS_MAGIC);
        bytes.extend(u64::from(segment).to_le_bytes());
        bytes.extend([0; 8]);
        Self { bytes }
    }

    pub(super) fn push(&mut self, frame: &Frame<'_>, offset: u32) {
        let (kind, number) = match frame.content.into() {
            Says::ValueOf(bytes) => (PUT, bytes),
            Says::NoneSince(segment) => (DELETE, segment),
        };
        let mut head = [0; KEY_HEAD_BYTES];
        head[0..4].copy_from_slice(&frame.table.to_le_bytes());
        head[4..8].copy_from_slice(&offset.to_le_bytes());
        head[8..12].copy_from_slice(&number.to_le_bytes());
        head[12..14].copy_from_slice(&(frame.key.len() as u16).to_le_bytes());
        head[14] = kind;
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(frame.key);
    }

    /// Writes the file beside a segment that ends like this, and is on the disk.
    pub(super) fn write(mut self, segment: &Path, ended: Ended) -> Result<(), EngineError> {
        self.bytes[16..20].copy_from_slice(&ended.length.to_le_bytes());
        self.bytes[20..24].copy_from_slice(&ended.batches.to_le_bytes());
        let checksum = xxh3_64(&self.bytes);
        self.bytes.extend(checksum.to_le_bytes());
        let (begun, complete) = (segment.with_extension("keys-begun"), keys_path(segment));
        let written = fs::write(&begun, &self.bytes).and_then(|()| fs::rename(&begun, &complete));
        written.map_err(|error| failure::io("write", &complete, error))
    }
}

impl From<KeysFile> for Keys {
    fn from(file: KeysFile) -> Self {
        Self { bytes: file.bytes }
    }
}

/// A file of keys that is whole.
#[derive(Debug)]
pub(super) struct KeysFile {
    bytes: Vec<u8>,
    /// How the segment ends.
    pub(super) ended: Ended,
}

impl KeysFile {
    /// Reads the file beside a segment; `None` if there is none that is whole.
    pub(super) fn read(segment: &Path, number: u32) -> Option<Self> {
        let mut bytes = fs::read(keys_path(segment)).ok()?;
        let (said, checksum) = bytes.split_last_chunk::<8>()?;
        let head = said.get(..KEYS_HEAD_BYTES)?;
        let is_whole = xxh3_64(said) == u64::from_le_bytes(*checksum);
        let is_ours = head[..8] == *KEYS_MAGIC && head[8..16] == u64::from(number).to_le_bytes();
        let ended = Ended {
            length: u32::from_le_bytes(*head[16..].first_chunk()?),
            batches: u32::from_le_bytes(*head[20..].first_chunk()?),
        };
        let said = said.len();
        bytes.truncate(said);
        (is_whole && is_ours).then_some(Self { bytes, ended })
    }

    /// Deletes it: the segment goes on.
    pub(super) fn delete(&self, segment: &Path) -> Result<(), EngineError> {
        let path = keys_path(segment);
        fs::remove_file(&path).map_err(|error| failure::io("delete", &path, error))
    }

    /// What it says, in the order of the segment.
    pub(super) fn iter(&self) -> impl Iterator<Item = Named<'_>> {
        self.places().map(|(_, named)| named)
    }

    /// The same, and where in the file each stands.
    fn places(&self) -> impl Iterator<Item = (usize, Named<'_>)> {
        let mut place = KEYS_HEAD_BYTES;
        std::iter::from_fn(move || {
            let (at, named) = (place, self.named_at(place)?);
            place += KEY_HEAD_BYTES + named.key.len();
            Some((at, named))
        })
    }

    fn named_at(&self, place: usize) -> Option<Named<'_>> {
        let (head, behind) = self.bytes.get(place..)?.split_first_chunk::<KEY_HEAD_BYTES>()?;
        let number = |at: usize| Some(u32::from_le_bytes(*head[at..].first_chunk()?));
        let key_bytes = u16::from_le_bytes([head[12], head[13]]);
        Some(Named {
            table: number(0)?,
            offset: number(4)?,
            key: behind.get(..key_bytes.into())?,
            says: match head[14] {
                PUT => Says::ValueOf(number(8)?),
                _ => Says::NoneSince(number(8)?),
            },
        })
    }

    /// The offsets of deletions beside which the segment has another of the same key that says as much or more: one that
    /// is since a later segment, wherever it stands, since deletions are moved in any order. Of those only that are since a
    /// segment that is not before `oldest`.
    pub(super) fn repeated_deletions(&self, oldest: u32) -> HashSet<u32> {
        let mut repeated = HashSet::new();
        // Places in the file, and no keys: there may be as many as the segment has room for.
        let mut latest = HashTable::<usize>::new();
        let hash = |named: Named<'_>| xxh3_64_with_seed(named.key, named.table.into());
        for (place, named) in self.places() {
            let Some(since) = named.says.since().filter(|since| *since >= oldest) else {
                continue;
            };
            let is_it = |&other: &usize| {
                let other = self.named_at(other);
                other.is_some_and(|other| (other.table, other.key) == (named.table, named.key))
            };
            let Some(known) = latest.find_mut(hash(named), is_it) else {
                latest.insert_unique(hash(named), place, |&other| self.named_at(other).map_or(0, hash));
                continue;
            };
            match self.named_at(*known) {
                Some(other) if other.says.since() <= Some(since) => {
                    repeated.insert(other.offset);
                    *known = place;
                }
                _ => {
                    repeated.insert(named.offset);
                }
            }
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_deletions_of_a_key_the_one_that_says_most_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("9.segment");
        let mut keys = Keys::of(9);
        let none = Content::NoneSince;
        let said = [
            (1, "a", none(3)),
            (1, "a", Content::Value(b"value")),
            (1, "a", none(8)),
            (1, "a", none(5)),
            (2, "a", none(4)),
            (1, "b", none(4)),
            (1, "a", none(8)),
            (1, "b", none(3)),
        ];
        for (offset, (table, key, content)) in said.into_iter().enumerate() {
            let key = key.as_bytes();
            keys.push(&Frame { table, key, content }, offset as u32);
        }
        keys.write(&path, Ended::default()).unwrap();
        let repeated = |oldest| KeysFile::read(&path, 9).unwrap().repeated_deletions(oldest);
        assert_eq!(repeated(1), HashSet::from([0, 2, 3, 7]));
        assert_eq!(repeated(6), HashSet::from([2]));
    }
}
