//! One file of a version: linked, cloned, [made](crate::rebuild) or copied into place, verified as it streams, continued
//! where an earlier attempt stopped, from any source that has it.
//!
//! A copy grows under the name `NAME.part`, at its full length with holes; a link or a clone is made as `NAME.link`. Either gets its own name once its
//! length and checksum match the manifest, and it is durable. Invariants: a file with its own name is correct; and
//! nothing is ever written through a name that may be a link, since that would change the source.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fondaco_format::{Checksum, Checksummer, FileEntry};

use crate::copy::{Copy, Origin};
use crate::error::FetchError;
use crate::pace::FetchControl;
use crate::partial::PartialCopy;
use crate::pending_syncs::{Complete, PendingSyncs};
use crate::report::Findings;
use crate::share;
use crate::source::{LocalReader, PageCache, SourceError};
use crate::sources::{Choice, Sources};

/// How many bytes are read, checked and written at a time. Many kernels do not interrupt a system call for an event
/// loop that wakes up, and a call for a megabyte can take milliseconds.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// How often a source may fail in a row before a file gives up on it. With the pauses in between, that is some 15
/// seconds: a server may restart.
pub(crate) const FAILURES_MAX: u32 = 8;

/// How often a source may be busy in a row before a file gives up on it.
const BUSY_MAX: u32 = 100;

/// How often a relay is asked for a file that it does not have yet.
const RELAY_LOOK_AGAIN: Duration = Duration::from_millis(200);

/// How often a file with parts from several sources may turn out wrong, where no single source is to blame.
const MIXED_MAX: u32 = 5;

/// The name of a copy of a file that is not complete.
pub fn part_name(name: &str) -> String {
    format!("{name}.part")
}

/// The name of a link to a file that is not verified yet.
pub(crate) fn link_name(name: &str) -> String {
    format!("{name}.link")
}

/// A file to fetch.
#[derive(Clone, Copy)]
pub(crate) struct FileFetch<'a> {
    pub(crate) sources: &'a Sources,
    /// The number of the source that is waited for until it has the file.
    pub(crate) relay: Option<usize>,
    /// How often a source may fail in succession before it is given up for this file.
    pub(crate) failures_max: u32,
    pub(crate) entry: &'a FileEntry,
    pub(crate) dir: &'a Path,
    pub(crate) control: &'a FetchControl,
    pub(crate) cache: PageCache,
    pub(crate) findings: &'a Findings,
    pub(crate) pending_syncs: &'a PendingSyncs<'a>,
    /// The copy that look-ups share, if the version is open while it is fetched.
    pub(crate) partial: Option<&'a Arc<PartialCopy>>,
}

/// The results of a source for this file.
#[derive(Default, Clone)]
struct Trial {
    failures: u32,
    busy: u32,
    /// How often the whole file came from it and was wrong.
    mismatches: u32,
    given_up: bool,
}

/// The length and checksum of the bytes that were read.
pub(crate) struct Seen {
    pub(crate) bytes: u64,
    pub(crate) checksum: Checksum,
}

/// The result of an attempt to link or clone a file.
pub(crate) enum Shared {
    /// The file is in its place.
    Done,
    /// The file must be copied.
    Impossible,
    /// The source's file does not match the manifest.
    Corrupt(FetchError),
}

/// An error of streaming: retryable or not.
pub(crate) enum StreamError {
    Source(SourceError),
    Fetch(FetchError),
}

impl From<FetchError> for StreamError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

impl From<SourceError> for StreamError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl FileFetch<'_> {
    /// Links the file that another version of the store has on this disk, after verifying it. Returns whether it is in
    /// place.
    pub(crate) fn link(&self, sibling: &Path) -> Result<bool, FetchError> {
        if self.keep_complete()? {
            return Ok(true);
        }
        let link = self.dir.join(link_name(&self.entry.name));
        remove(&link)?;
        // It may be deleted at this moment, or have too many links.
        if fs::hard_link(sibling, &link).is_err() {
            return Ok(false);
        }
        match self.read_back(&link) {
            Ok(seen) if self.matches(&seen) => {
                let file = File::open(&link).map_err(FetchError::io("open", &link))?;
                self.keep(file, link, None)?;
                self.findings.linked(seen.bytes);
                return Ok(true);
            }
            Ok(seen) => self.control.forget(seen.bytes),
            Err(FetchError::Io { .. }) => {}
            Err(error) => return Err(error),
        }
        tracing::warn!(?sibling, "the file of another version is damaged: it is fetched");
        remove(&link)?;
        Ok(false)
    }

    /// Puts the file of a local source into place without copying it, after verifying it.
    pub(crate) fn share(&self, source: usize) -> Result<Shared, FetchError> {
        if self.keep_complete()? {
            return Ok(Shared::Done);
        }
        let Some(source_dir) = self.sources.get(source).local_dir() else {
            return Ok(Shared::Impossible);
        };
        let link = self.dir.join(link_name(&self.entry.name));
        remove(&link)?;
        if !share::share(&source_dir.join(&self.entry.name), &link).unwrap_or(false) {
            // Copying will report the error.
            remove(&link)?;
            return Ok(Shared::Impossible);
        }
        let mut last_try = false;
        loop {
            let seen = match self.read_back(&link) {
                Err(FetchError::Io { .. }) => {
                    remove(&link)?;
                    return Ok(Shared::Impossible);
                }
                seen => seen?,
            };
            if self.matches(&seen) {
                let file = File::open(&link).map_err(FetchError::io("open", &link))?;
                self.keep(file, link, None)?;
                return Ok(Shared::Done);
            }
            self.control.forget(seen.bytes);
            if last_try {
                remove(&link)?;
                let location = self.sources.get(source).name();
                self.findings.corrupt(location, &self.entry.name);
                return Ok(Shared::Corrupt(self.mismatch(source, &seen)));
            }
            last_try = true;
        }
    }

    /// Copies the file into place from the first source that has it, verifying it as it streams. `corrupt` is a source
    /// that is known to be corrupt, with its error.
    pub(crate) fn copy(&self, corrupt: Option<(usize, FetchError)>) -> Result<(), FetchError> {
        match self.keep_complete()? {
            true => Ok(()),
            false => self.complete(self.copied(corrupt)?),
        }
    }

    /// Copies the file, verified, under the name that it has until it is durable.
    pub(crate) fn copied(&self, corrupt: Option<(usize, FetchError)>) -> Result<Copy, FetchError> {
        let mut trials = vec![Trial::default(); self.sources.len()];
        let mut last_error = FetchError::NoSource;
        let mut mixed = 0;
        if let Some((number, error)) = corrupt {
            trials[number].given_up = true;
            last_error = error;
        }
        let mut copy = Copy::open(self)?;
        if self.matches(&copy.seen()) {
            // An earlier attempt ended before the file was durable.
            return Ok(copy);
        }
        loop {
            let relay = self.relay.filter(|&relay| !trials[relay].given_up);
            let is_left = |number, trial: &Trial| !trial.given_up && relay.is_none_or(|relay| relay == number);
            let given_up: Vec<bool> = (0..)
                .zip(&trials)
                .map(|(number, trial)| !is_left(number, trial))
                .collect();
            let number = match self.sources.choose(&given_up, self.control.now()) {
                Choice::Ask(number) => number,
                Choice::Wait(until) => {
                    self.control.back_off(until.saturating_sub(self.control.now()))?;
                    continue;
                }
                Choice::Nothing => return Err(last_error),
            };
            let trial = &mut trials[number];
            let (before, began) = (copy.streamed(), self.control.now());
            let result = copy.stream(self, number);
            if copy.streamed() == before && result.is_err() {
                self.sources.took(number, self.control.now().saturating_sub(began));
            }
            if copy.streamed() > before {
                self.sources.gave(number, copy.streamed() - before);
                // After progress, a source may fail as often as at first.
                (trial.failures, trial.busy) = (0, 0);
            }
            match result {
                Ok(()) => {
                    let seen = copy.seen();
                    if self.matches(&seen) {
                        return Ok(copy);
                    }
                    match copy.origin() {
                        Origin::Source(_) => trial.mismatches += 1,
                        Origin::Nothing | Origin::Several => mixed += 1,
                    }
                    if trial.mismatches == 2 || mixed == MIXED_MAX {
                        trial.given_up = true;
                        if trial.mismatches == 2 {
                            let location = self.sources.get(number).name();
                            self.findings.corrupt(location, &self.entry.name);
                        }
                        last_error = self.mismatch(number, &seen);
                    }
                    tracing::warn!(file = %self.entry.name, "checksum mismatch, reading the file once more");
                    self.control.forget(seen.bytes);
                    drop(copy);
                    remove(&self.part())?;
                    copy = Copy::open(self)?;
                }
                Err(StreamError::Fetch(error)) => return Err(error),
                Err(StreamError::Source(SourceError::Missing))
                    if relay.is_some() && self.sources.awaits(number, self.control.now()) =>
                {
                    // Other nodes wait for the files that are complete here.
                    self.pending_syncs.finish()?;
                    self.control.back_off(RELAY_LOOK_AGAIN)?;
                }
                Err(StreamError::Source(error)) => {
                    self.note(number, trial, &error);
                    tracing::warn!(
                        file = %self.entry.name, offset = copy.bytes(), source = %self.sources.get(number).name(),
                        %error, given_up = trial.given_up, "reading failed"
                    );
                    // The error of a corrupt source is more useful than that other sources lack the file.
                    if !last_error.blames_source() {
                        last_error = self.source_error(number, error);
                    }
                }
            }
        }
    }

    /// Counts a failure of a source.
    fn note(&self, number: usize, trial: &mut Trial, error: &SourceError) {
        let now = self.control.now();
        match error {
            SourceError::Missing => trial.given_up = true,
            SourceError::Unusable { .. } => {
                trial.given_up = true;
                // Other files ask another source first.
                self.sources.failed(number, now);
            }
            SourceError::Busy { retry_after } => {
                trial.busy += 1;
                self.sources.busy(number, *retry_after, now);
            }
            SourceError::Failed(_) => {
                trial.failures += 1;
                self.sources.failed(number, now);
            }
        }
        trial.given_up |= trial.failures >= self.failures_max || trial.busy >= BUSY_MAX;
    }

    /// Whether the complete file is already there, from an earlier attempt. A damaged file stays until another replaces
    /// it: its other parts may still be served.
    pub(crate) fn keep_complete(&self) -> Result<bool, FetchError> {
        let path = self.dir.join(&self.entry.name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() == self.entry.bytes => match self.read_back(&path) {
                Ok(seen) if self.matches(&seen) => {
                    self.control.file_done();
                    Ok(true)
                }
                Ok(seen) => {
                    self.control.forget(seen.bytes);
                    Ok(false)
                }
                Err(error @ FetchError::Io { .. }) => {
                    tracing::warn!(file = %self.entry.name, %error, "fetching it again");
                    Ok(false)
                }
                Err(error) => Err(error),
            },
            Ok(_) => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(FetchError::io("look at", path)(e)),
        }
    }

    pub(crate) fn complete(&self, copy: Copy) -> Result<(), FetchError> {
        let kept = copy.into_file(self.cache);
        let (file, drops) = kept.map_err(FetchError::io("keep open", self.part()))?;
        self.keep(file, self.part(), drops)
    }

    /// Makes a verified file durable and gives it its own name.
    fn keep(&self, file: File, temporary: PathBuf, drops: Option<(u64, u64)>) -> Result<(), FetchError> {
        self.pending_syncs.add(Complete {
            file,
            temporary,
            path: self.dir.join(&self.entry.name),
            drops,
        })
    }

    fn read_back(&self, path: &Path) -> Result<Seen, FetchError> {
        let mut reader = LocalReader::open(path, 0, self.cache).map_err(FetchError::io("open", path))?;
        let mut checksum = Checksummer::new();
        let mut bytes = 0;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = reader.read(&mut buffer).map_err(|error| {
                self.control.forget(bytes);
                FetchError::io("read", path)(error)
            })?;
            if count == 0 {
                let checksum = checksum.finish();
                return Ok(Seen { bytes, checksum });
            }
            checksum.update(&buffer[..count]);
            bytes += count as u64;
            self.control.passed(count as u64)?;
        }
    }

    pub(crate) fn part(&self) -> PathBuf {
        self.dir.join(part_name(&self.entry.name))
    }

    pub(crate) fn matches(&self, seen: &Seen) -> bool {
        seen.bytes == self.entry.bytes && seen.checksum == self.entry.checksum
    }

    fn mismatch(&self, source: usize, seen: &Seen) -> FetchError {
        FetchError::Mismatch {
            file: self.entry.name.clone(),
            location: self.sources.get(source).name(),
            expected_bytes: self.entry.bytes,
            expected: self.entry.checksum,
            found_bytes: seen.bytes,
            found: seen.checksum,
        }
    }

    fn source_error(&self, number: usize, source: SourceError) -> FetchError {
        FetchError::Source {
            file: self.entry.name.clone(),
            location: self.sources.get(number).name(),
            source,
        }
    }
}

/// Deletes a file, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), FetchError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FetchError::io("delete", path)(e)),
        _ => Ok(()),
    }
}
