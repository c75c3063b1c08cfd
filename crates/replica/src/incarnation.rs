//! Under which numbers this node's replicas give dots to writes, so that no dot is ever given twice.
//!
//! A dot is the node, an incarnation of its data, and a counter. The counter goes on as long as nothing that
//! was written can have been lost. Where something can, since the process did not come to an orderly end,
//! since the directory is new, or since an engine forgets everything with its process, a new incarnation
//! counts from the beginning. Its number is drawn by lot: one that began where the file was lost, with all that
//! is known of earlier ones, must not be one of them, whatever the clock shows. Another one begins, too, when a record
//! that was found damaged is replaced by what others have of it: that may be without its last dots.
//!
//! The invariant: an incarnation is on the disk before its first dot is given, and said to have ended well
//! only when all that was written under it is on the disk too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fondaco_model::NodeId;
use fondaco_model::versioned::{DotSource, ReplicaId};
use serde::{Deserialize, Serialize};

use crate::error::ReplicasError;

/// The file, in the directory of versioned stores.
const FILE: &str = "incarnation.json";

/// What is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The incarnation of what outlives the process.
    durable: u32,
    /// The incarnation of what does not.
    volatile: u32,
    /// The last counter that was given under `durable`, if it ended well; 0 as long as it lasts.
    counted: u64,
    /// Whether it ended well.
    ended: bool,
    /// Whether something that was acknowledged is lost here, and was not had from others yet.
    #[serde(default)]
    behind: bool,
    /// The identities of the engines that have directories of their own, by their kinds.
    #[serde(default)]
    engines: BTreeMap<String, u64>,
}

/// Whether what a store holds outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// It is on a disk.
    Durable,
    /// It is in memory alone.
    Volatile,
}

/// Where dots begin.
#[derive(Debug)]
pub(crate) struct Incarnation {
    path: PathBuf,
    engines: BTreeMap<String, u64>,
    numbers: Mutex<Numbers>,
    /// How often another one was begun.
    renewed: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Numbers {
    durable: u32,
    volatile: u32,
    /// The last counter given under `durable` in an earlier life.
    counted: u64,
    behind: bool,
    /// How often something was found to be lost while the process runs.
    falls: u64,
}

impl Incarnation {
    /// Goes on with the incarnation of `dir`, or begins another one: also if an engine has lost what was written. The
    /// engines of these identities are in use from now on.
    ///
    /// # Errors
    /// A file that cannot be read, understood or written.
    pub(crate) fn open(dir: &Path, has_lost: bool, engines: BTreeMap<String, u64>) -> Result<Self, ReplicasError> {
        let path = dir.join(FILE);
        let stored = read(&path)?;
        let (durable, counted) = match &stored {
            Some(stored) if stored.ended && !has_lost => (stored.durable, stored.counted),
            Some(stored) => (other_than(stored.durable), 0),
            None => (other_than(0), 0),
        };
        let numbers = Numbers {
            durable,
            volatile: other_than(stored.as_ref().map_or(0, |stored| stored.volatile)),
            counted,
            behind: has_lost || stored.is_none_or(|stored| stored.behind),
            falls: 0,
        };
        numbers.write(&path, &engines, 0, false)?;
        Ok(Self {
            path,
            engines,
            numbers: Mutex::new(numbers),
            renewed: AtomicU64::new(0),
        })
    }

    /// Begins another one. Who gives dots is to ask for [`dots`](Self::dots) anew before the next one.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn renew(&self) -> Result<(), ReplicasError> {
        let mut numbers = self.numbers();
        let others = Numbers {
            durable: other_than(numbers.durable),
            volatile: other_than(numbers.volatile),
            counted: 0,
            ..*numbers
        };
        others.write(&self.path, &self.engines, 0, false)?;
        *numbers = others;
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Whether something that was acknowledged may be lost here, since the directory is new, or an engine has lost what was
    /// written, and was not had from others yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.numbers().behind
    }

    /// Something that was acknowledged may be lost here.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn fall_behind(&self) -> Result<(), ReplicasError> {
        let mut numbers = self.numbers();
        numbers.falls += 1;
        if !numbers.behind {
            let fallen = Numbers {
                behind: true,
                ..*numbers
            };
            fallen.write(&self.path, &self.engines, 0, false)?;
            *numbers = fallen;
        }
        Ok(())
    }

    /// How often [`fall_behind`](Self::fall_behind) was called.
    pub(crate) fn falls(&self) -> u64 {
        self.numbers().falls
    }

    /// All that was lost was had from others, as it was seen when there had been so many [`falls`](Self::falls). It was not
    /// if there were more since.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn caught_up(&self, falls: u64) -> Result<(), ReplicasError> {
        let mut numbers = self.numbers();
        if numbers.falls > falls {
            return Ok(());
        }
        let whole = Numbers {
            behind: false,
            ..*numbers
        };
        whole.write(&self.path, &self.engines, 0, false)?;
        *numbers = whole;
        Ok(())
    }

    /// How often another one was begun while the process runs.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Relaxed)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dots that a node may give from now on. Each key is to get all of its dots from one source.
    pub(crate) fn dots(&self, node: NodeId, lasting: Lasting) -> DotSource {
        let numbers = *self.numbers();
        let (incarnation, last) = match lasting {
            Lasting::Durable => (numbers.durable, numbers.counted),
            Lasting::Volatile => (numbers.volatile, 0),
        };
        DotSource::new(ReplicaId { node, incarnation }, last)
    }

    /// To be called with the last counter of all sources when no more dots are given and all that was
    /// written is on the disk: the next start goes on from there.
    ///
    /// # Errors
    /// A file that cannot be written: the next start then begins a new incarnation.
    pub(crate) fn end(&self, last: u64) -> Result<(), ReplicasError> {
        let numbers = self.numbers();
        numbers.write(&self.path, &self.engines, last.max(numbers.counted), true)
    }
}

impl Numbers {
    fn write(
        &self,
        path: &Path,
        engines: &BTreeMap<String, u64>,
        counted: u64,
        ended: bool,
    ) -> Result<(), ReplicasError> {
        let stored = Stored {
            durable: self.durable,
            volatile: self.volatile,
            counted,
            ended,
            behind: self.behind,
            engines: engines.clone(),
        };
        let text = serde_json::to_vec(&stored).map_err(io::Error::other);
        text.and_then(|text| replace(path, &text))
            .map_err(ReplicasError::io("write", path))
    }
}

/// The identities of the engines that were in use in a directory when it was opened last, by their kinds.
///
/// # Errors
/// A file that cannot be read or understood.
pub(crate) fn known_engines(dir: &Path) -> Result<BTreeMap<String, u64>, ReplicasError> {
    Ok(read(&dir.join(FILE))?.map(|stored| stored.engines).unwrap_or_default())
}

/// A number drawn by lot, from 1. That it was drawn for this node before is as likely as to draw the same of four
/// thousand million twice; and then its counters, which go no slower than the clock, have mostly passed the old ones.
fn other_than(last: u32) -> u32 {
    // Its keys are drawn by the operating system.
    let mut drawn = std::iter::repeat_with(|| RandomState::new().build_hasher().finish() as u32);
    drawn.find(|&drawn| drawn != 0 && drawn != last).unwrap_or(1)
}

fn read(path: &Path) -> Result<Option<Stored>, ReplicasError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ReplicasError::io("read", path)(error)),
    };
    let stored = serde_json::from_slice(&text);
    stored.map(Some).map_err(|error| ReplicasError::InvalidIncarnation {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Replaces a file as a whole, durably.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tempfile::TempDir;

    use super::*;

    fn open(dir: &TempDir, has_lost: bool) -> Result<Incarnation, ReplicasError> {
        Incarnation::open(dir.path(), has_lost, BTreeMap::new())
    }

    fn begins(incarnation: &Incarnation, lasting: Lasting) -> (u32, u64) {
        let dots = incarnation.dots(NodeId::FIRST, lasting);
        (dots.replica().incarnation, dots.last())
    }

    #[test]
    fn after_an_orderly_end_counting_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir, false).unwrap();
        let (number, last) = begins(&first, Lasting::Durable);
        assert_eq!(last, 0);
        first.end(7).unwrap();
        let second = open(&dir, false).unwrap();
        assert_eq!(begins(&second, Lasting::Durable), (number, 7));
        second.end(0).unwrap();
        let third = open(&dir, false).unwrap();
        let expected = (number, 7);
        assert_eq!(
            begins(&third, Lasting::Durable),
            expected,
            "nothing was given in between"
        );
    }

    #[test]
    fn after_any_other_end_another_incarnation_counts() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir, false).unwrap();
        let second = open(&dir, false).unwrap();
        assert_ne!(begins(&first, Lasting::Durable).0, begins(&second, Lasting::Durable).0);
        assert_eq!(begins(&second, Lasting::Durable).1, 0);
    }

    #[test]
    fn where_something_was_lost_another_incarnation_counts_however_the_last_one_ended() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir, false).unwrap();
        first.end(7).unwrap();
        let second = open(&dir, true).unwrap();
        assert_ne!(begins(&first, Lasting::Durable).0, begins(&second, Lasting::Durable).0);
        assert_eq!(begins(&second, Lasting::Durable).1, 0);
        // Also while the process runs.
        second.end(9).unwrap();
        let before = [Lasting::Durable, Lasting::Volatile].map(|lasting| begins(&second, lasting));
        second.renew().unwrap();
        assert_eq!(second.renewed(), 1);
        let after = [Lasting::Durable, Lasting::Volatile].map(|lasting| begins(&second, lasting));
        for (before, after) in before.into_iter().zip(after) {
            assert!(before.0 != after.0 && after.1 == 0, "{before:?} {after:?}");
        }
        // It is on the disk, and has not ended.
        let third = open(&dir, false).unwrap();
        assert_ne!(begins(&third, Lasting::Durable).0, after[0].0);
    }

    #[test]
    fn engines_are_known_again_whenever_something_is_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(known_engines(dir.path()).unwrap(), BTreeMap::new());
        let engines = BTreeMap::from([("log".to_owned(), 7), ("disk".to_owned(), u64::MAX)]);
        let incarnation = Incarnation::open(dir.path(), false, engines.clone()).unwrap();
        incarnation.renew().unwrap();
        incarnation.fall_behind().unwrap();
        incarnation.caught_up(1).unwrap();
        assert_eq!(known_engines(dir.path()).unwrap(), engines);
        incarnation.end(3).unwrap();
        assert_eq!(known_engines(dir.path()).unwrap(), engines);
    }

    #[test]
    fn what_the_process_takes_with_it_has_a_new_incarnation_at_each_start() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir, false).unwrap();
        first.end(7).unwrap();
        let second = open(&dir, false).unwrap();
        assert_ne!(
            begins(&first, Lasting::Volatile).0,
            begins(&second, Lasting::Volatile).0
        );
        assert_eq!(begins(&second, Lasting::Volatile).1, 0);
    }

    #[test]
    fn a_disk_that_is_lost_as_soon_as_it_was_new_takes_no_number_back() {
        let begun = |_| {
            let dir = tempfile::tempdir().unwrap();
            let incarnation = open(&dir, false).unwrap();
            [Lasting::Durable, Lasting::Volatile].map(|lasting| begins(&incarnation, lasting).0)
        };
        let numbers: BTreeSet<u32> = (0..10).flat_map(begun).collect();
        assert!(!numbers.contains(&0));
        assert_eq!(numbers.len(), 20, "{numbers:?}");
    }

    #[test]
    fn a_file_that_is_not_understood_stops_the_start() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{}").unwrap();
        let error = open(&dir, false).unwrap_err();
        assert!(matches!(error, ReplicasError::InvalidIncarnation { .. }), "{error}");
    }
}
