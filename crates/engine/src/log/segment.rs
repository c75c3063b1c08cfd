//! The files of the log: segments, which are only appended to. Beside each that is full stand [the keys in it](super::keys).
//!
//! ```text
//! NUMBER.segment   "fondseg2", number (u64), identity of the log (u64), length of the segment before it (u32), count of
//!                  batches in that (u32), checksum (u64), batch…, zeros or nothing    integers are little-endian
//! ```
//!
//! A checksum is the xxh3 of all that stands before it in the head. What the segment before it ended like is written when
//! the first batch is: zeros say nothing about it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use xxhash_rust::xxh3::xxh3_64;

use super::keys::keys_path;
use crate::error::EngineError;
use crate::failure;
use crate::readable::{self, Readable};

const SEGMENT_MAGIC: &[u8; 8] = b"fondseg2";
/// What stands before the first batch.
pub(super) const SEGMENT_HEAD_BYTES: u32 = 40;

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

/// A segment that is open. Its file can be read as long as this exists, also when it was deleted.
#[derive(Debug)]
pub(super) struct Segment {
    number: u32,
    path: PathBuf,
    file: File,
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

    /// Deletes the files. Readers that have it open read on.
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
