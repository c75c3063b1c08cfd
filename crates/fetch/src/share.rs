//! Files that need not be copied: linked if they were given away, or cloned if the file system can clone.
//!
//! A link is the same file under another name: changing one changes the other. So a file is linked only if neither will
//! change. Its directory must contain the marker that gives it away ([`GIVEN_AWAY_FILE`], which `fondaco push` puts
//! into the directory that it makes and deletes). File and marker must belong to the user of this process, and the file
//! must have no other name, which it has if another node has linked it before. A clone (`FICLONE`, on XFS and Btrfs)
//! only shares space: a change of one does not affect the other, so any file may be cloned. All other files are copied.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fondaco_format::{GIVEN_AWAY_FILE, MANIFEST_FILE};
use rustix::fs::{Mode, OFlags, ioctl_ficlone};

use crate::source::open_file;

/// Whether files of a directory can be linked or cloned into another one of the same file system, as far as this is
/// known without doing it.
pub(crate) fn is_possible(from: &Path, to: &Path) -> bool {
    is_given_away(from) || clones(&from.join(MANIFEST_FILE), to).unwrap_or(false)
}

/// Links or clones a file. Returns whether it succeeded; otherwise there is nothing at the new path.
pub(crate) fn share(from: &Path, to: &Path) -> io::Result<bool> {
    let given_away = from.parent().is_some_and(is_given_away);
    Ok((given_away && link(from, to)?) || clone(from, to)?)
}

fn is_given_away(dir: &Path) -> bool {
    let statement = fs::symlink_metadata(dir.join(GIVEN_AWAY_FILE));
    statement.is_ok_and(|found| found.is_file() && is_ours(&found))
}

fn is_ours(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

fn link(from: &Path, to: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(from)?;
    if !found.is_file() || !is_ours(&found) || found.nlink() != 1 {
        return Ok(false);
    }
    if fs::hard_link(from, to).is_err() {
        // Another file system, too many links, or a protected file: copying will report the error.
        return Ok(false);
    }
    // Another node may have linked it, or an operator replaced it, at the same moment.
    let linked = fs::symlink_metadata(to)?;
    let is_alone = linked.ino() == found.ino() && linked.nlink() == 2;
    if !is_alone {
        fs::remove_file(to)?;
    }
    Ok(is_alone)
}

fn clone(from: &Path, to: &Path) -> io::Result<bool> {
    let from = open_file(from)?;
    let file = OpenOptions::new().write(true).create_new(true).open(to)?;
    let is_cloned = ioctl_ficlone(&file, &from).is_ok();
    if !is_cloned {
        fs::remove_file(to)?;
    }
    Ok(is_cloned)
}

/// Whether a file can be cloned into a directory. Leaves no file there.
fn clones(from: &Path, dir: &Path) -> io::Result<bool> {
    let from = open_file(from)?;
    let nameless = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, nameless, Mode::RUSR | Mode::WUSR)?);
    Ok(ioctl_ficlone(&file, &from).is_ok())
}
