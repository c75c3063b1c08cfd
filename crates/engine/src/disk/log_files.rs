//! The files of fjall's log: `N.jnl`, in the order of their numbers, with zeros or nothing after their content. This
//! module knows no more of them, and so relies on fjall for what is in them.
//!
//! Their lengths are noted at each sync. A log that is shorter has lost writes: its end is missing, or fjall has dropped
//! a part that was damaged, which it does not report. Damage of other kinds is noticed only as far as fjall refuses a log.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

use super::failure;
use crate::directory;
use crate::error::EngineError;
use crate::high_water::Mark;

/// The last file of a log, and where it ends. Searches for the end from `before` if that is a mark of the same file.
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

/// All files of a log, and where each one ends.
pub(super) fn all_marks(dir: &Path) -> Result<Vec<Mark>, EngineError> {
    let mark = |(number, path): (u64, PathBuf)| {
        let length = end_of(&path, 0).map_err(|error| failure::io("look at", &path, error))?;
        Ok(Mark { number, length })
    };
    files(dir)?.into_iter().map(mark).collect()
}

/// Compares a log with its marks before it is opened, and describes the lost parts.
pub(super) fn missing(dir: &Path, marks: &[Mark]) -> Result<Vec<String>, EngineError> {
    let files = all_marks(dir)?;
    let last = files.last().map_or(0, |last| last.number);
    // Several marks are written only on a clean close: then no file was written or deleted afterwards, and all of them
    // must exist.
    let are_all = marks.len() > 1;
    let absent = |mark: &&Mark| {
        let is_there = files.iter().any(|file| file.number == mark.number);
        !is_there && (are_all || files.is_empty() || mark.number > last)
    };
    let absent = marks.iter().filter(absent);
    let absent = absent.map(|mark| format!("the log {:?} is missing", name_of(dir, mark.number)));
    Ok(shortened(dir, marks, &files).chain(absent).collect())
}

/// The files that are shorter than their marks, of those that exist.
pub(super) fn shortened<'a>(dir: &'a Path, marks: &'a [Mark], files: &'a [Mark]) -> impl Iterator<Item = String> + 'a {
    marks.iter().filter_map(move |mark| {
        let file = files.iter().find(|file| file.number == mark.number)?;
        (file.length < mark.length).then(|| {
            format!(
                "the log {:?} ends at byte {}, and at byte {} when it was synced last",
                name_of(dir, mark.number),
                file.length,
                mark.length
            )
        })
    })
}

/// Cuts off a log after a mark, and keeps copies of the parts that it cuts off. Without a mark, all of it.
pub(super) fn cut_off(dir: &Path, mark: Option<Mark>) -> Result<(), EngineError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| failure::io("cut off the log", &path, error)
    };
    let mut cut = None;
    for (number, path) in files(dir)? {
        match mark {
            Some(mark) if number < mark.number => {}
            Some(mark) if number == mark.number => {
                let copy = free_name(&path);
                let copied = fs::copy(&path, &copy).and_then(|_| File::open(&copy)?.sync_all());
                copied.map_err(failed(&copy))?;
                cut = Some((path, mark.length));
            }
            _ => fs::rename(&path, free_name(&path)).map_err(failed(&path))?,
        }
    }
    ensure(dir)?;
    // Makes the renames durable before the cut: otherwise the next file would seem to continue the log there.
    directory::sync(dir).map_err(failed(dir))?;
    if let Some((path, length)) = cut {
        let file = File::options().write(true).open(&path);
        let cut = file.and_then(|file| file.set_len(length).and_then(|()| file.sync_all()));
        cut.map_err(failed(&path))?;
    }
    Ok(())
}

/// Makes sure that a database has a log: if there is none, fjall numbers writes from 0 again, and so below those in its
/// tables, which hide them.
pub(super) fn ensure(dir: &Path) -> Result<(), EngineError> {
    if !files(dir)?.is_empty() {
        return Ok(());
    }
    let made = File::create_new(name_of(dir, 0)).and_then(|_| directory::sync(dir));
    made.map_err(|error| failure::io("create a log in", dir, error))
}

fn name_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.jnl"))
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
