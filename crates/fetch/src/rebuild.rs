//! Chunks that the node makes itself: from the data file that another version of the store has on this disk, and a
//! patch.
//!
//! Only the patch is fetched, like any file. Then the data file and the index are written like copies: under the
//! names of copies, paced, within the space that the plan has reserved, and verified against the manifest. An
//! interrupted attempt begins anew, with the patch that was fetched. The index keeps the name of a copy: when the
//! turn of indexes comes, it is found complete. After any error, the caller fetches the files instead.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use fondaco_format::{ChunkEntry, FileEntry, FormatError, Manifest, Patch, PatchEntry};
use rustix::fs::{Advice, Mode, OFlags, fadvise};

use crate::copy::Copy;
use crate::error::FetchError;
use crate::file::{FileFetch, READ_BYTES, remove};
use crate::siblings::Siblings;
use crate::source::open_file;

/// The places of the records of a larger chunk are kept in a file while it is made.
const RECORDS_WITHOUT_FILE_MAX: u64 = 64 << 10;

/// How often a source of a patch may fail in succession before another one is asked for the whole chunk.
const PATCH_FAILURES_MAX: u32 = 2;

/// A chunk that can be made from another version's.
pub(crate) struct Rebuild {
    chunk: ChunkEntry,
    patch: PatchEntry,
    /// The data file of the other version.
    base: PathBuf,
}

/// The chunks of a plan that can be rebuilt, by the name of the first file that differs: that of the data, or else
/// that of the index.
#[derive(Default)]
pub(crate) struct Rebuilds(HashMap<String, Rebuild>);

impl Rebuilds {
    /// The chunks with patches whose bases are in other versions.
    pub(crate) fn find<'m>(
        manifest: &Manifest,
        chunks: impl Iterator<Item = &'m ChunkEntry>,
        siblings: &Siblings,
    ) -> Self {
        let patches: HashMap<_, _> = manifest
            .patches
            .iter()
            .map(|patch| ((patch.partition, patch.chunk), patch))
            .collect();
        let found = chunks.filter_map(|chunk| {
            let patch = *patches.get(&(chunk.partition, chunk.chunk))?;
            let base = siblings.of(&patch.base)?.to_owned();
            let file = match patch.base.name == chunk.data.name {
                true => &chunk.index,
                false => &chunk.data,
            };
            let (chunk, patch) = (chunk.clone(), patch.clone());
            Some((file.name.clone(), Rebuild { chunk, patch, base }))
        });
        Self(found.filter(|(name, _)| !siblings.has(name)).collect())
    }

    pub(crate) fn of(&self, file: &FileEntry) -> Option<&Rebuild> {
        self.0.get(&file.name)
    }

    /// The patches that are to be fetched.
    pub(crate) fn patches(&self) -> impl Iterator<Item = &FileEntry> {
        self.0.values().map(|rebuild| &rebuild.patch.patch)
    }
}

/// Why a chunk was not made.
enum Failed {
    /// The fetch has to end.
    Fetch(FetchError),
    /// The chunk has to be fetched.
    Rebuild(String),
}

impl From<FetchError> for Failed {
    fn from(error: FetchError) -> Self {
        match error {
            error @ (FetchError::Cancelled | FetchError::Interrupted | FetchError::DiskFull { .. }) => {
                Self::Fetch(error)
            }
            error => Self::Rebuild(error.to_string()),
        }
    }
}

impl From<FormatError> for Failed {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Write(error) => match error.downcast::<FetchError>() {
                Ok(error) => error.into(),
                Err(error) => Self::Rebuild(error.to_string()),
            },
            error => Self::Rebuild(error.to_string()),
        }
    }
}

impl FileFetch<'_> {
    /// Makes the chunk of this file, its data or its index. Returns whether the file is in place.
    pub(crate) fn rebuild(&self, rebuild: &Rebuild) -> Result<bool, FetchError> {
        if self.keep_complete()? {
            return Ok(true);
        }
        match self.try_rebuild(rebuild) {
            Ok(()) => Ok(true),
            Err(Failed::Fetch(error)) => Err(error),
            Err(Failed::Rebuild(reason)) => {
                let Rebuild { chunk, base, .. } = rebuild;
                tracing::warn!(
                    file = %self.entry.name, ?base, %reason,
                    "the chunk cannot be made from that of another version: it is fetched"
                );
                for entry in [&chunk.data, &chunk.index] {
                    remove(&FileFetch { entry, ..*self }.part())?;
                }
                Ok(false)
            }
        }
    }

    fn try_rebuild(&self, rebuild: &Rebuild) -> Result<(), Failed> {
        let Rebuild { chunk, patch, base } = rebuild;
        // The pieces that look-ups have read are not used: the file is made anew.
        let of = |entry| FileFetch {
            entry,
            partial: None,
            ..*self
        };
        // The node that relays the chunk has made it, and has no patch. Without one, the chunk is fetched: soon, where the
        // only source that has patches fails.
        let fetched = FileFetch {
            relay: None,
            failures_max: PATCH_FAILURES_MAX,
            ..of(&patch.patch)
        };
        let patch_bytes = fetched.copied(None)?.bytes();
        // The patch is no file of the version.
        self.control.forget(patch_bytes);
        let file = File::open(fetched.part()).map_err(FetchError::io("open", fetched.part()))?;
        let opened = Patch::open(&fetched.part(), file)?;
        let plan = opened.plan;
        if (opened.base, plan.partition, plan.chunk) != (patch.base.checksum, chunk.partition, chunk.chunk) {
            return Err(Failed::Rebuild("the patch is for another chunk".to_owned()));
        }
        let [data, index] = [of(&chunk.data), of(&chunk.index)];
        // Only the index is missing if the data is that of the other version.
        let has_data = self.entry.name == chunk.index.name;
        let mut writer = opened.begin(Growing::begin(&data, has_data)?);
        if opened.counts.records > RECORDS_WITHOUT_FILE_MAX
            && let Some(places) = nameless_file(self.dir)
        {
            writer = writer.with_places_in(|| Ok(places));
        }
        let mut old = open_file(base).map_err(FetchError::io("open", base))?;
        // Its pages serve reads: they are neither dropped nor preferred. It is a hint.
        let _ = fadvise(old.as_fd(), 0, None, Advice::NoReuse);
        opened.apply((base, &mut old), &mut writer)?;
        let (_, mut data_written, mut index_written) = writer.finish(Growing::begin(&index, false)?)?;
        data_written.check()?;
        index_written.check()?;
        match (data_written.copy.take(), index_written.copy.take()) {
            (None, Some(copy)) => index.complete(copy)?,
            (Some(copy), _) => {
                data.complete(copy)?;
                // It is counted when its turn comes.
                self.control.forget(chunk.index.bytes);
            }
            (None, None) => {}
        }
        remove(&fetched.part())?;
        self.findings.rebuilt(chunk.data.bytes, patch_bytes);
        Ok(())
    }
}

/// A file that is being made.
struct Growing<'a> {
    fetch: FileFetch<'a>,
    /// `None` if the file is there already.
    copy: Option<Copy>,
}

impl<'a> Growing<'a> {
    fn begin(fetch: &FileFetch<'a>, is_there: bool) -> Result<Self, FetchError> {
        remove(&fetch.part())?;
        Ok(Self {
            fetch: *fetch,
            copy: (!is_there).then(|| Copy::open(fetch)).transpose()?,
        })
    }

    /// Verifies the file.
    fn check(&self) -> Result<(), Failed> {
        let is_right = |copy: &Copy| self.fetch.matches(&copy.seen());
        match self.copy.as_ref().is_none_or(is_right) {
            true => Ok(()),
            false => {
                let name = &self.fetch.entry.name;
                Err(Failed::Rebuild(format!(
                    "{name:?} got other bytes than its manifest says"
                )))
            }
        }
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        if let Some(copy) = &self.copy {
            // It was not used.
            self.fetch.control.forget(copy.bytes());
        }
    }
}

impl Write for Growing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(copy) = &mut self.copy else {
            return Ok(bytes.len());
        };
        let piece = &bytes[..bytes.len().min(READ_BYTES)];
        if copy.bytes() + piece.len() as u64 > self.fetch.entry.bytes {
            return Err(io::Error::other("it would be longer than its manifest says"));
        }
        copy.add(piece, &self.fetch).map_err(io::Error::other)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file without a name, if the file system has such files.
fn nameless_file(dir: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
    file.ok().map(File::from)
}
