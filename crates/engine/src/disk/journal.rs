//! Checks whether the log of a database is intact, and cuts off the damaged part. It does not replay the log: fjall
//! does.
//!
//! fjall's log is a sequence of files `N.jnl` of batches, each with a checksum. If the process ends during a write, the
//! log may end with a partial batch; fjall drops it, and no acknowledged write is lost. If a valid batch follows an
//! invalid place, either bits have changed, or the machine lost power before it had written data that was not synced.
//! fjall then either refuses to open the log or silently skips the rest, depending on the bit. So this module checks
//! the log first.
//!
//! ```text
//! batch = start item* end
//! start = 1, number of items u32, sequence number u64
//! item  = 2, kind u8, compression u8, tree u64, key length u16, value length u32, stored length u32, key, value
//!       | 4, tree u64
//! end   = 3, XXH3-64 of all items u64, "FJL" 3                      integers are little-endian
//! ```
//!
//! The sequence numbers, which no checksum covers, increase from batch to batch. After the last batch of the last file
//! there are only zeros, or nothing.
//!
//! This is fjall's own format, which another version of fjall may change: logs of another version are neither checked
//! nor cut. `Cargo.toml` therefore pins the exact version. Before you change it, compare this file with fjall's
//! `journal` module.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use rustix::fs::SeekFrom;
use xxhash_rust::xxh3::xxh3_64;

use super::failure;
use crate::directory;
use crate::error::EngineError;
use crate::high_water::Mark;
use crate::readable::{self, Readable};

/// The content of fjall's file `version` for the log format that this module can read.
const VERSION: &[u8] = b"FJL\x03";

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// The log of a database.
#[derive(Debug)]
pub(super) struct Journal {
    /// Where the intact part ends, if the log is damaged.
    pub(super) damage: Option<Damage>,
    /// The files, each with its length up to the damage.
    pub(super) files: Vec<Mark>,
}

/// The place at which the intact part of a log ends.
#[derive(Debug)]
pub(super) struct Damage {
    path: PathBuf,
    offset: u64,
    /// The content of the file, as far as it can be read.
    bytes: Vec<u8>,
    /// The error, if a part of the file cannot be read.
    unreadable: Option<io::Error>,
    /// The files after this one.
    later: Vec<PathBuf>,
}

impl Damage {
    /// Describes the damage, for an error message.
    pub(super) fn describe(&self) -> String {
        let reason = self.unreadable.as_ref().map(|reason| format!(" ({reason})"));
        let (path, offset) = (&self.path, self.offset);
        format!(
            "the log {path:?} is damaged at byte {offset}{}",
            reason.unwrap_or_default()
        )
    }

    /// Cuts off the log at the damage, and keeps a copy of the part that it cuts off.
    pub(super) fn cut_off(&self) -> Result<(), EngineError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| failure::io("cut off the log", &path, error)
        };
        for path in &self.later {
            fs::rename(path, free_name(path)).map_err(failed(path))?;
        }
        let copy = free_name(&self.path);
        let copied = File::create(&copy).and_then(|mut file| {
            file.write_all(&self.bytes)?;
            file.sync_all()
        });
        copied.map_err(failed(&copy))?;
        // Makes the renames durable before the cut: otherwise the next file would seem to continue the log there.
        let dir = self.path.parent().unwrap_or(&self.path);
        directory::sync(dir).map_err(failed(dir))?;
        let file = OpenOptions::new().write(true).open(&self.path);
        let cut = file.and_then(|file| file.set_len(self.offset).and_then(|()| file.sync_all()));
        cut.map_err(failed(&self.path))
    }
}

/// An unused file name for the copy of a file.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u32| match number {
        1 => path.with_extension("jnl-damaged"),
        _ => path.with_extension(format!("jnl-damaged-{number}")),
    };
    let mut names = (1..).map(name);
    let free = names.find(|name| !name.exists());
    free.unwrap_or_else(|| name(1))
}

/// Fails unless the version of fjall is the one whose log this module can read.
pub(super) fn check_version(dir: &Path) -> Result<(), EngineError> {
    let path = dir.join("version");
    let reason = match fs::read(&path) {
        Ok(version) if version == VERSION => return Ok(()),
        Ok(version) => format!(
            "fjall's version is {:?}, expected {:?}",
            version.escape_ascii().to_string(),
            VERSION.escape_ascii().to_string()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing".to_owned(),
        Err(error) => return Err(failure::reading(&path, error)),
    };
    let reason = format!("{reason}; nothing was changed: use the program that wrote it");
    Err(failure::corrupt(&path, reason))
}

/// Checks the log in a directory. No other thread may write to the log meanwhile.
pub(super) fn examine(dir: &Path) -> Result<Journal, EngineError> {
    let found = files(dir)?;
    let mut journal = Journal {
        damage: None,
        files: Vec::new(),
    };
    let mut sequence = None;
    for (at, (number, path)) in found.iter().enumerate() {
        // Not mapped: a failing disk, or a hole in a file on a full disk, would kill the process (SIGBUS).
        let Readable { bytes, unreadable } = readable::read(path).map_err(|error| failure::reading(path, error))?;
        let end = whole_batches(&bytes, &mut sequence);
        let rest = &bytes[end..];
        let later = &found[at + 1..];
        journal.files.push(Mark {
            number: *number,
            length: end as u64,
        });
        // Only the last file may be incomplete.
        let torn = later.is_empty() && !has_whole_batch(rest);
        let is_damaged = !torn && rest.iter().any(|byte| *byte != 0);
        if is_damaged || unreadable.is_some() {
            journal.damage = Some(Damage {
                path: path.clone(),
                offset: end as u64,
                bytes,
                unreadable,
                later: later.iter().map(|(_, path)| path.clone()).collect(),
            });
            break;
        }
    }
    Ok(journal)
}

/// The last file of the log, and where it ends. Searches for the end from `before` if that is a mark of the same file.
/// Call it only while no thread writes.
pub(super) fn last_mark(dir: &Path, before: Option<Mark>) -> Result<Option<Mark>, EngineError> {
    let Some((number, path)) = files(dir)?.pop() else {
        return Ok(None);
    };
    let from = before
        .filter(|before| before.number == number)
        .map_or(0, |before| before.length);
    let length = end_of(&path, from).map_err(|error| failure::io("look at", &path, error))?;
    Ok(Some(Mark { number, length }))
}

/// All files of the log, and where each one ends.
pub(super) fn all_marks(dir: &Path) -> Result<Vec<Mark>, EngineError> {
    let mark = |(number, path): (u64, PathBuf)| {
        let length = end_of(&path, 0).map_err(|error| failure::io("look at", &path, error))?;
        Ok(Mark { number, length })
    };
    files(dir)?.into_iter().map(mark).collect()
}

/// Where a file of the log ends: only zeros follow. The file system skips holes if it can report them.
fn end_of(path: &Path, from: u64) -> io::Result<u64> {
    const BLOCK_BYTES: u64 = 4096;
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = if from > length { 0 } else { from };
    let mut end = rustix::fs::seek(&file, SeekFrom::Hole(from))
        .unwrap_or(length)
        .min(length);
    while end > from {
        let start = end.saturating_sub(BLOCK_BYTES).max(from);
        let mut block = vec![0; (end - start) as usize];
        file.read_exact_at(&mut block, start)?;
        if let Some(last) = block.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(from)
}

/// The files of the log, in order.
fn files(dir: &Path) -> Result<Vec<(u64, PathBuf)>, EngineError> {
    let failed = |error| failure::io("list", dir, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let number = path
            .file_stem()
            .and_then(OsStr::to_str)
            .and_then(|stem| stem.parse::<u64>().ok());
        if let Some(number) = number
            && path.extension() == Some(OsStr::new("jnl"))
        {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// The end of the valid batches at the beginning. Stops at the first batch that is invalid or out of order.
fn whole_batches(bytes: &[u8], sequence: &mut Option<u64>) -> usize {
    let mut end = 0;
    while let Some((number, length)) = batch(&bytes[end..]) {
        if sequence.is_some_and(|last| number <= last) {
            break;
        }
        *sequence = Some(number);
        end += length;
    }
    end
}

/// Whether the bytes contain a valid batch anywhere.
fn has_whole_batch(bytes: &[u8]) -> bool {
    // Without a trailer there is no batch. After a crash there is almost never a trailer.
    let Some(last) = memmem::rfind(bytes, TRAILER) else {
        return false;
    };
    let starts = memchr::memchr_iter(START, &bytes[..last]);
    starts.into_iter().any(|start| batch(&bytes[start..]).is_some())
}

/// The sequence number and length of the batch that begins here, if the batch is valid.
fn batch(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut rest = bytes;
    (take(&mut rest, 1)? == [START]).then_some(())?;
    let items = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let number = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
    let content = rest;
    for _ in 0..items {
        item(&mut rest)?;
    }
    let content = &content[..content.len() - rest.len()];
    (take(&mut rest, 1)? == [END]).then_some(())?;
    let checksum = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
    (take(&mut rest, TRAILER.len())? == TRAILER).then_some(())?;
    (xxh3_64(content) == checksum).then_some((number, bytes.len() - rest.len()))
}

fn item(rest: &mut &[u8]) -> Option<()> {
    match take(rest, 1)? {
        [ITEM] => {
            let header = take(rest, 1 + 1 + 8 + 2 + 4 + 4)?;
            let key_bytes = u16::from_le_bytes(header[10..12].try_into().ok()?);
            let stored_bytes = u32::from_le_bytes(header[16..20].try_into().ok()?);
            take(rest, usize::from(key_bytes))?;
            take(rest, stored_bytes as usize)?;
            Some(())
        }
        [CLEAR] => take(rest, 8).map(drop),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(number: u64, value: &[u8]) -> Vec<u8> {
        let mut content = vec![ITEM, 0, 0];
        content.extend(7_u64.to_le_bytes());
        content.extend(3_u16.to_le_bytes());
        content.extend((value.len() as u32).to_le_bytes());
        content.extend((value.len() as u32).to_le_bytes());
        content.extend(b"key");
        content.extend(value);
        let mut batch = vec![START];
        batch.extend(1_u32.to_le_bytes());
        batch.extend(number.to_le_bytes());
        batch.extend(&content);
        batch.push(END);
        batch.extend(xxh3_64(&content).to_le_bytes());
        batch.extend(TRAILER);
        batch
    }

    fn damage_of(files: &[Vec<u8>]) -> Option<Damage> {
        let dir = tempfile::tempdir().unwrap();
        for (number, bytes) in files.iter().enumerate() {
            fs::write(dir.path().join(format!("{number}.jnl")), bytes).unwrap();
        }
        examine(dir.path()).unwrap().damage
    }

    #[test]
    fn whole_batches_with_zeros_after_them_are_whole() {
        let one = [encoded(1, b"a"), encoded(2, b"b")].concat();
        let two = [encoded(5, b"c"), vec![0; 1000]].concat();
        assert!(damage_of(&[one.clone(), two]).is_none());
        assert!(damage_of(&[one, Vec::new()]).is_none());
        assert!(damage_of(&[]).is_none());
    }

    #[test]
    fn only_the_very_end_may_be_cut_short() {
        let (first, second) = (encoded(1, b"a"), encoded(2, &[b'b'; 100]));
        for length in 1..second.len() {
            let torn = [&first, &second[..length]].concat();
            assert!(damage_of(std::slice::from_ref(&torn)).is_none(), "{length}");
            let found = damage_of(&[torn, encoded(3, b"c")]).unwrap();
            assert_eq!((found.offset, found.later.len()), (first.len() as u64, 1));
        }
    }

    #[test]
    fn every_bit_that_changes_before_the_last_batch_is_found() {
        let (first, second, third) = (encoded(1, b"a"), encoded(2, b"b"), encoded(3, b"c"));
        let whole = [first.clone(), second.clone(), third].concat();
        for bit in first.len() * 8..(first.len() + second.len()) * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = damage_of(&[flipped]).unwrap_or_else(|| panic!("bit {bit} is not missed"));
            // A sequence number that has become larger is only noticed when the next one is smaller.
            let ends = [first.len(), first.len() + second.len()].map(|end| end as u64);
            assert!(ends.contains(&found.offset), "bit {bit}: {found:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, number: u64) {
            let mut sequence = None;
            let end = whole_batches(&bytes, &mut sequence);
            proptest::prop_assert!(end <= bytes.len());
            has_whole_batch(&bytes);
            let with_batch = [&bytes[..], &encoded(number, &bytes)].concat();
            proptest::prop_assert!(has_whole_batch(&with_batch));
        }
    }
}
