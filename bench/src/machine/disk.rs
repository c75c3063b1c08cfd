//! The disk: how many reads it was asked for, how to forget what memory holds of it, and what room it has.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise, major, minor, statvfs};

/// How many reads the device of a directory has completed since the machine started, as
/// `/proc/diskstats` counts them: everybody's, so the machine has to be quiet otherwise.
///
/// (`blkio.throttle.io_serviced` would count those of one control group, but stays empty where no
/// throttle is set; `/proc/PID/io` counts bytes only.)
pub fn reads_completed(dir: &Path) -> Result<u64> {
    let device = fs::metadata(dir)?.dev();
    let wanted = [major(device).to_string(), minor(device).to_string()];
    let stats = fs::read_to_string("/proc/diskstats")?;
    let reads = stats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.len() > 3 && fields[..2] == wanted).then(|| fields[3])
    });
    let reads = reads.with_context(|| format!("the disk of {dir:?} is not in /proc/diskstats"))?;
    Ok(reads.parse()?)
}

/// How many bytes may still be written to the file system of a directory.
pub fn available_bytes(dir: &Path) -> Result<u64> {
    let known = statvfs(dir).with_context(|| format!("could not ask for the room on the disk of {dir:?}"))?;
    Ok(known.f_bavail * known.f_frsize)
}

/// Writes out and drops from the page cache all files in a directory, and below.
pub fn forget(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("could not list {dir:?}"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else {
            let file = File::open(entry.path())?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Reads all files in a directory, and below, into the page cache.
pub fn remember(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("could not list {dir:?}"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remember(&entry.path())?;
        } else {
            std::io::copy(&mut File::open(entry.path())?, &mut std::io::sink())?;
        }
    }
    Ok(())
}
