//! The files of the log: append-only segments. Beside each full segment there is a file with [its keys](super::keys).
//!
//! ```text
//! NUMBER.segment   "fondseg2", number (u64), identity of the log (u64), length of the segment before it (u32), count of
//!                  batches in that (u32), checksum (u64), batch…, zeros or nothing    integers are little-endian
//! ```
//!
//! The checksum is the XXH3 of the head before it. The end of the previous segment is written together with the first
//! batch: zeros mean unknown.

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
/// The length of the head, before the first batch.
pub(super) const SEGMENT_HEAD_BYTES: u32 = 40;

/// The end of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) length: u32,
    pub(super) batches: u32,
}

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// The segment belongs to the log of this identity. Also the end of the previous segment, if known.
    Whole(u64, Option<Ended>),
    /// The head is damaged.
    Damaged,
}

/// An open segment. Its file can be read as long as this exists, even after it was deleted.
#[derive(Debug)]
pub(super) struct Segment {
    number: u32,
    path: PathBuf,
    file: File,
}

impl Segment {
    /// Creates a segment of the log with this identity, and preallocates `bytes` bytes if the file system supports it.
    pub(super) fn create(dir: &Path, number: u32, identity: u64, bytes: u64) -> Result<Self, EngineError> {
        let path = dir.join(format!("{number:010}.segment"));
        let failed = |error| failure::io("create", &path, error);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(failed)?;
        let head = head_of(number, identity, Ended::default());
        let made = file.write_all_at(&head, 0).and_then(|()| {
            // Optional: keeps the file contiguous, and spares syncs the update of its length. Without it the file
            // grows.
            let _ = fallocate(&file, FallocateFlags::empty(), 0, bytes);
            fondaco_durable::sync_directory(dir)
        });
        if let Err(error) = made {
            let _ = fs::remove_file(&path);
            return Err(failed(error));
        }
        Ok(Self { number, path, file })
    }

    /// Writes the end of the previous segment, before anything else is written to this one.
    pub(super) fn begin(&self, identity: u64, before: Ended) -> Result<(), EngineError> {
        self.write_at(&head_of(self.number, identity, before), 0)
    }

    /// Opens an existing segment.
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

    /// Reads `length` bytes from an offset.
    pub(super) fn read_at(&self, offset: u32, length: usize) -> Result<Vec<u8>, EngineError> {
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, offset.into());
        read.map_err(|error| failure::reading(&self.path, error))?;
        Ok(bytes)
    }

    /// Reads all of it from the disk and not from the page cache, which may contain data that could not be written.
    pub(super) fn read_all(&self) -> Result<Readable, EngineError> {
        readable::read(&self.path).map_err(|error| failure::reading(&self.path, error))
    }

    /// The length of the file.
    pub(super) fn file_bytes(&self) -> Result<u64, EngineError> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|error| failure::io("look at", &self.path, error))?
            .len())
    }

    /// Reads the head.
    pub(super) fn head(&self) -> Result<Head, EngineError> {
        let mut bytes = [0; SEGMENT_HEAD_BYTES as usize];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => self.head_in(&bytes),
            Err(error) if failure::is_damage(&error) => Ok(Head::Damaged),
            Err(error) => Err(failure::reading(&self.path, error)),
        }
    }

    /// Parses the head from bytes that were read.
    ///
    /// # Errors
    /// The segment has another version: then nothing in it is checked, let alone changed.
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

    /// The name of the copy of a damaged segment.
    pub(super) fn aside(&self) -> PathBuf {
        self.path.with_extension("segment-damaged")
    }

    /// Keeps a copy under another name, which remains after the segment is deleted.
    pub(super) fn set_aside(&self) -> Result<(), EngineError> {
        let aside = self.aside();
        // A hard link, if the file system supports it: the file is not written to any more.
        let linked = match fs::hard_link(&self.path, &aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(_) => fs::copy(&self.path, &aside).and_then(|_| File::open(&aside)?.sync_all()),
            Ok(()) => Ok(()),
        };
        linked.map_err(|error| failure::io("keep a copy of", &self.path, error))
    }

    /// Truncates the file after its last batch.
    pub(super) fn cut(&self, length: u32) -> Result<(), EngineError> {
        let cut = self.file.set_len(length.into());
        cut.map_err(|error| failure::io("cut", &self.path, error))
    }

    /// Waits until all writes are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Deletes the files. Readers that have the segment open can still read it.
    pub(super) fn delete(&self) -> Result<(), EngineError> {
        for path in [keys_path(&self.path), self.path.clone()] {
            fondaco_durable::remove_file(&path).map_err(|error| failure::io("delete", &path, error))?;
        }
        Ok(())
    }
}

/// The encoded head of a segment.
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
