//! The length of a log, noted in a file beside it (the high-water mark). A log that is shorter, or missing, has lost
//! writes, which it cannot detect by itself.
//!
//! ```text
//! high-water   "fondhwm1", identity (u64), checksum (u64), zeros up to byte 512; a slot of 512 bytes, and another one
//! slot         turn (u64), count (u64), mark…, checksum (u64), zeros
//! mark         number of a file of the log (u64), its length (u64)                  integers are little-endian
//! ```
//!
//! A checksum is the XXH3 of everything before it in the head or in the slot. The slot with the higher turn is valid.
//! The two slots are written alternately, each within one sector, so one of them is always intact after a loss of
//! power. They are not synced: an older mark is lower, but never wrong.
//!
//! The identity is drawn when the engine's directory is created: a replacement directory has another identity.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::directory;
use crate::error::EngineError;
use crate::failure;

const MAGIC: &[u8; 8] = b"fondhwm1";
const FILE: &str = "high-water";
const HEAD_BYTES: usize = 24;
const SLOT_BYTES: usize = 512;
const SLOTS: u64 = 2;
/// The maximum number of marks in a slot.
pub(crate) const MARKS_MAX: usize = (SLOT_BYTES - 24) / 16;

/// A file of a log, and its minimum length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) length: u64,
}

/// The open high-water file of an engine.
#[derive(Debug)]
pub(crate) struct HighWater {
    path: PathBuf,
    file: File,
    identity: u64,
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    turn: u64,
    marks: Vec<Mark>,
}

/// The high-water file that was found in a directory.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is no such file.
    Nothing,
    /// The identity and the marks, as far as they can be read.
    Something(Option<u64>, Option<Vec<Mark>>),
}

impl Found {
    /// Whether the file was made completely, as far as can be told. If it was not, no log beside it can have been begun.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Something(identity, marks) if identity.is_some() || marks.is_some())
    }
}

impl HighWater {
    /// Reads the file in a directory. Changes nothing.
    pub(crate) fn find(dir: &Path) -> Result<Found, EngineError> {
        let path = dir.join(FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            file => file.map_err(|error| failure::io("open", &path, error))?,
        };
        let newest = slots(&file).max_by_key(|noted| noted.turn);
        Ok(Found::Something(identity(&file), newest.map(|noted| noted.marks)))
    }

    /// Opens the file, or creates it. If the identity is not readable, writes the known identity, or else a
    /// new one.
    pub(crate) fn open(dir: &Path, known_identity: Option<u64>) -> Result<Self, EngineError> {
        let path = dir.join(FILE);
        let failed = |error| failure::io("write", &path, error);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let file = file.map_err(failed)?;
        let identity = match identity(&file) {
            Some(identity) => identity,
            None => {
                let identity = known_identity.unwrap_or_else(draw);
                let make = || {
                    if slots(&file).next().is_none() {
                        // A file with an identity also has a slot.
                        file.write_all_at(&slot_of(1, &[]), offset_of(1))?;
                    }
                    file.write_all_at(&head_of(identity), 0)?;
                    file.set_len((1 + SLOTS) * SLOT_BYTES as u64)?;
                    file.sync_all()?;
                    directory::sync(dir)
                };
                make().map_err(failed)?;
                identity
            }
        };
        let newest = slots(&file).max_by_key(|noted| noted.turn);
        let noted = newest.unwrap_or(Noted {
            turn: 0,
            marks: Vec::new(),
        });
        Ok(Self {
            path,
            file,
            identity,
            noted: Mutex::new(noted),
        })
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Notes the length of the log that is on the disk. If there are too many files, only the last ones.
    pub(crate) fn note(&self, marks: &[Mark]) -> Result<(), EngineError> {
        let marks = &marks[marks.len().saturating_sub(MARKS_MAX)..];
        let mut noted = self.noted.lock();
        if noted.marks == marks {
            return Ok(());
        }
        let turn = noted.turn + 1;
        let written = self.file.write_all_at(&slot_of(turn, marks), offset_of(turn));
        written.map_err(|error| failure::io("write", &self.path, error))?;
        *noted = Noted {
            turn,
            marks: marks.to_vec(),
        };
        Ok(())
    }

    /// Like [`note`](Self::note), and syncs the file: the new marks are lower than the old ones.
    pub(crate) fn note_durably(&self, marks: &[Mark]) -> Result<(), EngineError> {
        self.note(marks)?;
        let synced = self.file.sync_all();
        synced.map_err(|error| failure::io("sync", &self.path, error))
    }
}

/// Draws a random number, which no other directory has.
pub(crate) fn draw() -> u64 {
    // The operating system supplies the random keys of `RandomState`.
    RandomState::new().build_hasher().finish()
}

fn head_of(identity: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..16].copy_from_slice(&identity.to_le_bytes());
    let checksum = xxh3_64(&head[..16]);
    head[16..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// The identity in a file, if it can be read.
fn identity(file: &File) -> Option<u64> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, 0).ok()?;
    let identity = u64::from_le_bytes(*head[8..].first_chunk()?);
    (head == head_of(identity)).then_some(identity)
}

/// The slots with a valid checksum.
fn slots(file: &File) -> impl Iterator<Item = Noted> {
    (1..=SLOTS).filter_map(|place| {
        let mut slot = [0; SLOT_BYTES];
        file.read_exact_at(&mut slot, place * SLOT_BYTES as u64).ok()?;
        parse_slot(&slot)
    })
}

/// The offset of the slot for a turn.
fn offset_of(turn: u64) -> u64 {
    SLOT_BYTES as u64 * (1 + turn % SLOTS)
}

fn slot_of(turn: u64, marks: &[Mark]) -> [u8; SLOT_BYTES] {
    debug_assert!(marks.len() <= MARKS_MAX);
    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    bytes.extend(turn.to_le_bytes());
    bytes.extend((marks.len() as u64).to_le_bytes());
    for mark in marks {
        bytes.extend(mark.number.to_le_bytes());
        bytes.extend(mark.length.to_le_bytes());
    }
    let checksum = xxh3_64(&bytes);
    bytes.extend(checksum.to_le_bytes());
    let mut slot = [0; SLOT_BYTES];
    slot[..bytes.len()].copy_from_slice(&bytes);
    slot
}

fn parse_slot(slot: &[u8; SLOT_BYTES]) -> Option<Noted> {
    let number = |at: usize| Some(u64::from_le_bytes(*slot.get(at..)?.first_chunk()?));
    let (turn, count) = (number(0)?, number(8)?);
    let count = usize::try_from(count).ok().filter(|&count| count <= MARKS_MAX)?;
    let end = 16 + 16 * count;
    (xxh3_64(&slot[..end]) == number(end)?).then_some(())?;
    let mark = |at: usize| {
        Some(Mark {
            number: number(16 + 16 * at)?,
            length: number(24 + 16 * at)?,
        })
    };
    let marks = (0..count).map(mark).collect::<Option<_>>()?;
    // A slot that was never written is all zeros, which have no valid checksum.
    (turn > 0).then_some(Noted { turn, marks })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn marks(count: u64) -> Vec<Mark> {
        (1..=count)
            .map(|number| Mark {
                number,
                length: 10 * number,
            })
            .collect()
    }

    fn found(dir: &Path) -> (Option<u64>, Option<Vec<Mark>>) {
        match HighWater::find(dir).unwrap() {
            Found::Nothing => panic!("nothing is found"),
            Found::Something(identity, marks) => (identity, marks),
        }
    }

    #[test]
    fn the_last_marks_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(HighWater::find(dir.path()).unwrap(), Found::Nothing));
        let water = HighWater::open(dir.path(), None).unwrap();
        assert_eq!(found(dir.path()), (Some(water.identity()), Some(Vec::new())));
        for count in [1, 2, 0, 3, MARKS_MAX as u64] {
            water.note(&marks(count)).unwrap();
            assert_eq!(found(dir.path()), (Some(water.identity()), Some(marks(count))));
        }
        let too_many = marks(MARKS_MAX as u64 + 2);
        water.note(&too_many).unwrap();
        assert_eq!(found(dir.path()).1.as_deref(), Some(&too_many[2..]));
        let again = HighWater::open(dir.path(), Some(1)).unwrap();
        assert_eq!(again.identity(), water.identity());
    }

    #[test]
    fn a_damaged_slot_leaves_the_previous_one() {
        let dir = tempfile::tempdir().unwrap();
        let water = HighWater::open(dir.path(), None).unwrap();
        (1..=4).for_each(|count| water.note(&marks(count)).unwrap());
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        let mut allowed = vec![Some(marks(4)), Some(marks(3))];
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(dir.path().join(FILE), flipped).unwrap();
            let (identity, marks) = found(dir.path());
            assert_eq!(identity.is_none(), bit / 8 < HEAD_BYTES, "bit {bit}");
            assert!(allowed.contains(&marks), "bit {bit}: {marks:?}");
        }
        fs::write(dir.path().join(FILE), &bytes[..40]).unwrap();
        allowed.clear();
        assert_eq!(found(dir.path()), (Some(water.identity()), None));
        fs::write(dir.path().join(FILE), b"").unwrap();
        assert_eq!(found(dir.path()), (None, None));
        assert_eq!(HighWater::open(dir.path(), Some(7)).unwrap().identity(), 7);
    }
}
