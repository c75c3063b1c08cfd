//! The disk: its count of reads, dropping files from the page cache, and its free space.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise, major, minor, statvfs};

/// How many reads the device of a directory has completed since the machine started, according to `/proc/diskstats`. It
/// counts the reads of all processes, so the machine has to be idle otherwise.
///
/// (`blkio.throttle.io_serviced` would count those of one control group, but stays empty unless a throttle is set;
/// `/proc/PID/io` counts only bytes.)
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

/// The free space of a directory's file system, in bytes.
pub fn available_bytes(dir: &Path) -> Result<u64> {
    let known = statvfs(dir).with_context(|| format!("could not read the free space on the disk of {dir:?}"))?;
    Ok(known.f_bavail * known.f_frsize)
}

/// Writes all files in a directory to disk and drops them from the page cache, recursively.
pub fn forget(dir: &Path) -> Result<()> {
    each_file(dir, &mut |path| {
        let file = File::open(path)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    })
}

/// Reads all files in a directory into the page cache, recursively.
pub fn remember(dir: &Path) -> Result<()> {
    each_file(dir, &mut |path| {
        std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
        Ok(())
    })
}

/// Copies the files of a directory to another one.
pub fn copy_files(from: &Path, to: &Path) -> Result<()> {
    each_file(from, &mut |path| {
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, to.join(name)).with_context(|| format!("could not copy {path:?} to {to:?}"))?;
        Ok(())
    })
}

/// Calls a function with each file in a directory, recursively. Files may be deleted meanwhile.
pub fn each_file(dir: &Path, each: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("could not list {dir:?}"))? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => each_file(&entry.path(), each)?,
            false => each(&entry.path())?,
        }
    }
    Ok(())
}
