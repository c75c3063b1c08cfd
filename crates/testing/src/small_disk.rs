//! A small disk, which can be filled and emptied again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use tempfile::TempDir;

/// The file that fills the disk.
const BALLAST: &str = "ballast";

/// A file system in a directory. Dropping it unmounts it.
pub struct SmallDisk {
    dir: PathBuf,
    /// The same directory, if it is removed with the disk.
    _temporary: Option<TempDir>,
}

impl SmallDisk {
    /// Mounts a file system of this many bytes, in a directory that is made if needed; `None` where this process may
    /// not mount.
    pub fn mount(dir: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(dir).ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "fondaco-test"]);
        let output = mount.arg(dir).output().ok()?;
        output.status.success().then(|| Self {
            dir: dir.to_owned(),
            _temporary: None,
        })
    }

    /// Mounts a file system of this many bytes in a temporary directory; `None` where this process may not mount, which
    /// is printed.
    ///
    /// # Panics
    /// If the directory cannot be created.
    pub fn temporary(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("cannot create a temporary directory: {error}"));
        let Some(mut disk) = Self::mount(dir.path(), bytes) else {
            eprintln!("skipped: this process may not mount a file system (it needs root)");
            return None;
        };
        disk._temporary = Some(dir);
        Some(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Leaves room for this many bytes, or fewer if other processes write now.
    ///
    /// # Panics
    /// If the room cannot be taken.
    pub fn fill_up_to(&self, left_bytes: u64) {
        let ballast = File::create(self.dir.join(BALLAST)).and_then(|ballast| {
            let found = statvfs(&self.dir)?;
            let taken_bytes = (found.f_bavail * found.f_frsize).saturating_sub(left_bytes);
            match fallocate(&ballast, FallocateFlags::empty(), 0, taken_bytes.max(1)) {
                // Other processes filled it first.
                Err(rustix::io::Errno::NOSPC) | Ok(()) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        ballast.unwrap_or_else(|error| panic!("cannot fill the disk at {:?}: {error}", self.dir));
    }

    /// Frees the space again, unless other processes took it.
    ///
    /// The file is emptied before it is removed: a process that another test is starting has a copy of every open file
    /// until it runs its program, which would keep the space of a removed one.
    ///
    /// # Panics
    /// If the file cannot be emptied or removed.
    pub fn make_room(&self) {
        let path = self.dir.join(BALLAST);
        let emptied = File::options()
            .write(true)
            .open(&path)
            .and_then(|ballast| ballast.set_len(0));
        match emptied.and_then(|()| fs::remove_file(path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("cannot make room on the disk at {:?}: {error}", self.dir)
            }
            _ => {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: files that are still open disappear when they are closed.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_nothing_until_it_has_room() {
        let Some(disk) = SmallDisk::temporary(1 << 20) else {
            return;
        };
        let (dir, page) = (disk.path().to_owned(), [1; 4096]);
        let path = dir.join("file");
        fs::write(&path, page).unwrap();
        disk.fill_up_to(0);
        fs::write(dir.join("other"), page).unwrap_err();
        // Open elsewhere, as in a process that is being started.
        let elsewhere = File::open(dir.join(BALLAST)).unwrap();
        disk.make_room();
        fs::write(dir.join("other"), page).unwrap();
        drop(elsewhere);
        disk.fill_up_to(64 << 10);
        fs::write(&path, [1; 32 << 10]).unwrap();
        fs::write(&path, [1; 256 << 10]).unwrap_err();
        drop(disk);
        assert!(!dir.exists());
    }
}
