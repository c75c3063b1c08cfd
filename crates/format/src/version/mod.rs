//! An open version: its contents, and how to open it.
//!
//! A directory may hold only some of the partitions of its version: those whose files all exist. It can be opened again
//! when there are more. A key of a partition that is not held is never reported absent: looking it up is the error
//! [`FormatError::NotHeld`].
//!
//! An embedding program needs only [`Version::get`]. A server must not wait for the disk in a shared thread,
//! so it performs the steps of a look-up separately:
//!
//! 1. [`Version::probe`] hashes the key and prefetches its index entry,
//! 2. [`Version::prefetch`] prefetches its records (worth it for several keys at a time),
//! 3. [`Version::lookup`] answers at once, or returns a [`ColdRead`], which the server performs in its own way and
//!    passes to [`Version::complete`].

mod cold;
mod compare;
mod damage;
mod lifetimes;
mod lookup;
mod recent;
mod resident;
pub(crate) mod scan;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fondaco_model::{PartitionId, SlotPrefix};

pub use cold::{ColdRead, ColdStep};
pub use compare::{Compared, Comparison};
pub use lifetimes::Lifetimes;
pub(crate) use lookup::prefetch;
pub use lookup::{Dated, Lookup, Probe, Value};
pub use recent::STEP_BYTES_MAX;

use crate::checksum::Checksum;
use crate::chunk::index::BLOCK_BYTES;
use crate::chunk::reader::Chunk;
use crate::compression::Decoder;
use crate::error::{FileDefect, FormatError};
use crate::manifest::{ChunkEntry, FileEntry, FurtherFile, Manifest};
use crate::mapping::Mapping;
use crate::partial::{FilePlace, bring_blocks};
use damage::Damage;
use lookup::NOT_HELD;
use resident::ResidentIndex;

/// How many headers are read at a time when a version is opened while it is fetched.
const HEADERS_AT_ONCE: usize = 32;

/// An open version. Immutable and shared freely between threads.
pub struct Version {
    dir: PathBuf,
    manifest: Manifest,
    identity: Checksum,
    slots: SlotPrefix,
    /// The index in `chunks` of the first chunk of each partition; one more entry ends the last partition. A partition
    /// that is empty or not held has none.
    partition_starts: Box<[u32]>,
    /// Whether each partition is held.
    held: Box<[bool]>,
    /// The number of records in the held partitions.
    records: u64,
    chunks: Box<[Chunk]>,
    decoder: Decoder,
    /// Set by [`Version::warm`].
    resident: OnceLock<ResidentIndex>,
    /// See [`Version::set_lifetimes`].
    lifetimes: OnceLock<Lifetimes>,
    damage: Damage,
}

impl Version {
    /// Opens the partitions of a version that a directory holds: reads only the manifest and the headers of files.
    ///
    /// A partition is held if all files of its chunks exist under their names with the right lengths; every directory
    /// holds a partition without records. All others count as stored elsewhere.
    ///
    /// # Errors
    /// No manifest, an unknown format, or files that contradict the manifest.
    pub fn open(dir: &Path) -> Result<Self, FormatError> {
        Self::open_whole(dir, Manifest::read_identified(dir)?, |_| false)
    }

    /// Opens a version while it is fetched: `place` says where each of its files is, and `dictionary` is the content of its
    /// dictionary, if it has one. Reads the headers of all indexes, several at a time.
    ///
    /// # Errors
    /// As [`Version::open`], or no source gives the header of an index.
    pub fn open_partial(
        dir: &Path,
        (manifest, identity): (Manifest, Checksum),
        dictionary: Option<&[u8]>,
        place: &(dyn Fn(&FileEntry) -> FilePlace + Sync),
    ) -> Result<Self, FormatError> {
        let headers = manifest
            .chunks
            .chunks(manifest.chunks.len().div_ceil(HEADERS_AT_ONCE).max(1));
        std::thread::scope(|scope| {
            for chunks in headers {
                scope.spawn(move || {
                    for ChunkEntry { index, .. } in chunks {
                        if let FilePlace::Partial(partial) = place(index) {
                            let brought = bring_blocks(&*partial, &(0..BLOCK_BYTES as u64), index.bytes);
                            // An error is met again when the chunk is opened.
                            if brought.is_err() {
                                break;
                            }
                        }
                    }
                });
            }
        });
        Self::open_with(dir, (manifest, identity), dictionary, place, |_| false)
    }

    /// Opens the version in a directory, if it holds these partitions.
    ///
    /// # Errors
    /// As [`Version::open`], and [`FormatError::MissingFile`] if one of these partitions is not held, or
    /// [`FormatError::NoPartition`] if the version does not have it.
    pub fn open_required(dir: &Path, partitions: impl IntoIterator<Item = PartitionId>) -> Result<Self, FormatError> {
        let (manifest, identity) = Manifest::read_identified(dir)?;
        let mut required = vec![false; manifest.partitions.get() as usize];
        for partition in partitions {
            match required.get_mut(partition.get() as usize) {
                Some(required) => *required = true,
                None => {
                    return Err(FormatError::NoPartition {
                        partition,
                        partitions: manifest.partitions,
                        path: dir.to_owned(),
                    });
                }
            }
        }
        Self::open_whole(dir, (manifest, identity), |partition| {
            required[partition.get() as usize]
        })
    }

    fn open_whole(
        dir: &Path,
        (manifest, identity): (Manifest, Checksum),
        is_required: impl Fn(PartitionId) -> bool,
    ) -> Result<Self, FormatError> {
        let dictionary = read_dictionary(dir, &manifest)?;
        let place = |file: &FileEntry| FilePlace::Whole(dir.join(&file.name));
        Self::open_with(dir, (manifest, identity), dictionary.as_deref(), &place, is_required)
    }

    fn open_with(
        dir: &Path,
        (manifest, identity): (Manifest, Checksum),
        dictionary: Option<&[u8]>,
        place: &dyn Fn(&FileEntry) -> FilePlace,
        is_required: impl Fn(PartitionId) -> bool,
    ) -> Result<Self, FormatError> {
        let decoder = Decoder::new(manifest.compression, dictionary)?;
        let mut starts = Vec::with_capacity(manifest.partitions.get() as usize + 1);
        let mut held = Vec::with_capacity(manifest.partitions.get() as usize);
        let mut chunks = Vec::with_capacity(manifest.chunks.len());
        let mut rest = &manifest.chunks[..];
        for partition in manifest.partitions.partitions() {
            let start = chunks.len();
            starts.push(start as u32);
            let count = rest.iter().take_while(|entry| entry.partition == partition).count();
            let (own, others) = rest.split_at(count);
            rest = others;
            match open_chunks(place, own, &mut chunks) {
                Ok(()) => held.push(true),
                Err(FormatError::MissingFile { .. }) if !is_required(partition) => {
                    chunks.truncate(start);
                    held.push(false);
                }
                Err(error) => return Err(error),
            }
        }
        starts.push(chunks.len() as u32);
        assert!(
            chunks.len() < NOT_HELD as usize,
            "a manifest is too short for {} chunks",
            chunks.len()
        );
        let is_held = |chunk: &&ChunkEntry| held[chunk.partition.get() as usize];
        Ok(Self {
            dir: dir.to_owned(),
            slots: SlotPrefix::of(&manifest.store),
            partition_starts: starts.into(),
            records: manifest.chunks.iter().filter(is_held).map(|chunk| chunk.records).sum(),
            held: held.into(),
            chunks: chunks.into(),
            decoder,
            resident: OnceLock::new(),
            lifetimes: OnceLock::new(),
            damage: Damage::default(),
            manifest,
            identity,
        })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The identity of the version: see [`Manifest::identity`].
    pub fn identity(&self) -> Checksum {
        self.identity
    }

    /// The number of records in the held partitions.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether a partition is held.
    pub fn holds(&self, partition: PartitionId) -> bool {
        self.held.get(partition.get() as usize).is_some_and(|held| *held)
    }

    /// The held partitions, in order.
    pub fn held(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let partitions = self.manifest.partitions.partitions();
        partitions.filter(|&partition| self.holds(partition))
    }

    /// The partitions that are not held, in order.
    pub fn not_held(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let partitions = self.manifest.partitions.partitions();
        partitions.filter(|&partition| !self.holds(partition))
    }

    /// The partitions without records, in order: they have no files, and are always held.
    pub fn empty(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let starts = self
            .manifest
            .partitions
            .partitions()
            .zip(self.partition_starts.windows(2));
        starts.filter_map(|(partition, at)| (at[0] == at[1] && self.holds(partition)).then_some(partition))
    }

    fn held_chunks(&self) -> impl Iterator<Item = &ChunkEntry> {
        self.manifest.chunks.iter().filter(|chunk| self.holds(chunk.partition))
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Loads all indexes into memory and verifies them: from then on every look-up finds its index in memory, even
    /// under memory pressure. It takes the time to read them, and memory of their length. It is not needed for
    /// correctness.
    ///
    /// # Errors
    /// Corruption, or a failed read.
    pub fn warm(&self) -> Result<(), FormatError> {
        if self.resident.get().is_none() {
            // If two threads do this at the same time, one of the two equal results is kept.
            let loaded = ResidentIndex::load(&self.chunks, |chunk, error| self.note(chunk, error))?;
            let _ = self.resident.set(loaded);
        }
        Ok(())
    }

    /// Loads all indexes like [`Version::warm`], and closes their files: half of the open files and mappings.
    ///
    /// # Errors
    /// As [`Version::warm`].
    pub fn warm_and_close(&mut self) -> Result<(), FormatError> {
        self.warm()?;
        self.chunks.iter_mut().for_each(Chunk::close_index);
        Ok(())
    }

    /// Whether it was opened while it is fetched.
    pub fn is_partial(&self) -> bool {
        let mut mappings = self
            .chunks
            .iter()
            .flat_map(|chunk| chunk.index().into_iter().chain([chunk.data()]));
        mappings.any(|mapping| mapping.partial().is_some())
    }

    /// The total length of the held index files, in bytes: this much should be resident.
    pub fn index_bytes(&self) -> u64 {
        self.held_chunks().map(|chunk| chunk.index.bytes).sum()
    }

    /// The total length of the held files, in bytes.
    pub fn files_bytes(&self) -> u64 {
        let files = self.held_chunks().flat_map(ChunkEntry::files);
        let chunks: u64 = files.map(|file| file.bytes).sum();
        let dictionary = self.manifest.dictionary.as_ref();
        chunks + dictionary.map_or(0, |dictionary| dictionary.bytes)
    }

    fn mapping(&self, chunk: u32, of_index: bool) -> &Mapping {
        let chunk = &self.chunks[chunk as usize];
        // A read of an index starts only while it is open. If it were closed, the checksum of the block would not
        // match.
        chunk.index().filter(|_| of_index).unwrap_or(chunk.data())
    }
}

fn read_dictionary(dir: &Path, manifest: &Manifest) -> Result<Option<Vec<u8>>, FormatError> {
    let Some(entry) = &manifest.dictionary else {
        return Ok(None);
    };
    let path = dir.join(&entry.name);
    let bytes = std::fs::read(&path).map_err(FormatError::io("read", &path))?;
    if Checksum::of(&bytes) != entry.checksum {
        return Err(FormatError::corrupt(path, "its checksum does not match"));
    }
    Ok(Some(bytes))
}

/// Opens all chunks of a partition; after an error some may have been added.
fn open_chunks(
    place: &dyn Fn(&FileEntry) -> FilePlace,
    entries: &[ChunkEntry],
    chunks: &mut Vec<Chunk>,
) -> Result<(), FormatError> {
    for entry in entries {
        chunks.push(Chunk::open(place, entry, entries.len() as u32)?);
        for FurtherFile { file, .. } in &entry.further {
            if let FilePlace::Whole(path) = place(file) {
                check_file(path, file, entry.partition)?;
            }
        }
    }
    Ok(())
}

/// Checks that a file exists, without opening it.
fn check_file(path: PathBuf, entry: &FileEntry, partition: PartitionId) -> Result<(), FormatError> {
    let defect = match std::fs::metadata(&path) {
        Ok(found) if found.len() == entry.bytes => return Ok(()),
        Ok(found) => FileDefect::Length {
            found_bytes: found.len(),
            expected_bytes: entry.bytes,
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => FileDefect::Absent,
        Err(e) => return Err(FormatError::io("inspect", path)(e)),
    };
    Err(FormatError::MissingFile {
        partition,
        path,
        defect,
    })
}
