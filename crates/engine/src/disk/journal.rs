//! Whether the log of a database is whole, and how it is cut off where it is not. It does not replay it: fjall does.
//!
//! fjall's log is a row of files `N.jnl` of batches, each with a checksum. The end of a process can leave part of a
//! batch at the very end; fjall drops it, and nothing is lost that was acknowledged. Where anything whole comes
//! after a place that is not, bits have changed, or a machine lost its power before it had written what it was never
//! told to sync. fjall then either refuses to open or silently leaves out the rest; which, depends on the bit. So
//! this looks first.
//!
//! ```text
//! batch = start item* end
//! start = 1, number of items u32, sequence number u64
//! item  = 2, kind u8, compression u8, tree u64, key length u16, value length u32, stored length u32, key, value
//!       | 4, tree u64
//! end   = 3, XXH3-64 of all items u64, "FJL" 3                      integers are little-endian
//! ```
//!
//! The sequence numbers, which no checksum covers, rise from batch to batch. After the last batch of the last file
//! come zeros, or nothing.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memmem;
use xxhash_rust::xxh3::xxh3_64;

use super::failure;
use crate::directory;
use crate::error::EngineError;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// Where a log stops being whole.
#[derive(Debug)]
pub(super) struct Damage {
    path: PathBuf,
    offset: u64,
    /// The files after that one.
    later: Vec<PathBuf>,
}

impl Damage {
    /// In words.
    pub(super) fn describe(&self) -> String {
        format!("the log {:?} is damaged at byte {}", self.path, self.offset)
    }

    /// Deletes the log from there on, but for whole files, which are renamed.
    pub(super) fn cut_off(&self) -> Result<(), EngineError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| failure::io("cut off the log", &path, error)
        };
        for path in &self.later {
            fs::rename(path, path.with_extension("jnl-damaged")).map_err(failed(path))?;
        }
        // Where this is cut, the next one would seem to go on.
        let dir = self.path.parent().unwrap_or(&self.path);
        directory::sync(dir).map_err(failed(dir))?;
        let file = OpenOptions::new().write(true).open(&self.path);
        let cut = file.and_then(|file| file.set_len(self.offset).and_then(|()| file.sync_all()));
        cut.map_err(failed(&self.path))
    }
}

/// Looks for damage in the log in a directory, which nobody writes meanwhile.
pub(super) fn damage(dir: &Path) -> Result<Option<Damage>, EngineError> {
    let files = files(dir)?;
    let mut sequence = None;
    for (at, path) in files.iter().enumerate() {
        // Not mapped: a disk that fails, or a hole in a file where nothing is free, would end the process.
        let bytes = read(path).map_err(|error| failure::io("read", path, error))?;
        let end = whole_batches(&bytes, &mut sequence);
        let rest = &bytes[end..];
        let later = &files[at + 1..];
        // A file is only followed by another once it is complete.
        let torn = later.is_empty() && !has_whole_batch(rest);
        if !torn && rest.iter().any(|byte| *byte != 0) {
            return Ok(Some(Damage {
                path: path.clone(),
                offset: end as u64,
                later: later.to_vec(),
            }));
        }
    }
    Ok(None)
}

/// What the disk has of a file, and not what the kernel remembers of it: that may be what it could not write.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The files of the log, in order.
fn files(dir: &Path) -> Result<Vec<PathBuf>, EngineError> {
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
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Where the first batch ends that is not whole, or not in order, or would begin.
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

/// Whether a whole batch is anywhere in there.
fn has_whole_batch(bytes: &[u8]) -> bool {
    // Without a trailer there is no batch, and after a crash there is none, almost always.
    let Some(last) = memmem::rfind(bytes, TRAILER) else {
        return false;
    };
    let starts = memchr::memchr_iter(START, &bytes[..last]);
    starts.into_iter().any(|start| batch(&bytes[start..]).is_some())
}

/// The sequence number and length of the batch that begins here, if it is whole.
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
        damage(dir.path()).unwrap()
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
            // A sequence number that has become larger is noticed when the next is not.
            let ends = [first.len(), first.len() + second.len()].map(|end| end as u64);
            assert!(ends.contains(&found.offset), "bit {bit}: {found:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_no_trouble(bytes: Vec<u8>, number: u64) {
            let mut sequence = None;
            let end = whole_batches(&bytes, &mut sequence);
            proptest::prop_assert!(end <= bytes.len());
            has_whole_batch(&bytes);
            let with_batch = [&bytes[..], &encoded(number, &bytes)].concat();
            proptest::prop_assert!(has_whole_batch(&with_batch));
        }
    }
}
