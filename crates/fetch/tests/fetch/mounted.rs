//! A file system that clones files, and that reports damaged sectors as errors: Btrfs, in a file. If this process may
//! not mount one, or there is no `mkfs.btrfs`, nothing is tested.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fondaco_fetch::LocationSource;
use fondaco_format::{FormatError, ScanPosition, Version};
use fondaco_storage::Location;
use tempfile::TempDir;

use crate::place::{Place, Source, Tuning, control};

const BYTES: u64 = 256 << 20;

/// A mounted file system, unmounted when dropped.
struct Btrfs(TempDir);

impl Btrfs {
    /// `None` if it cannot be mounted.
    fn mount() -> Option<Self> {
        let disk = Self(TempDir::new().unwrap());
        let image = fs::File::create(disk.image()).unwrap();
        image.set_len(BYTES).unwrap();
        fs::create_dir(disk.path()).unwrap();
        let made = Command::new("mkfs.btrfs")
            .args(["-q", "-d", "single", "-m", "single"])
            .arg(disk.image())
            .output();
        let is_made = made.is_ok_and(|output| output.status.success());
        (is_made && disk.mount_again()).then_some(disk)
    }

    fn mount_again(&self) -> bool {
        let mounted = Command::new("mount")
            .args(["-o", "loop"])
            .args([self.image(), self.path()])
            .output();
        mounted.is_ok_and(|output| output.status.success())
    }

    fn unmount(&self) {
        let done = Command::new("umount").arg(self.path()).status().unwrap();
        assert!(done.success());
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("mounted")
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // Lazily: a failed test may have left files open.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_cloned_version_takes_no_space_and_is_independent() {
    let Some(disk) = Btrfs::mount() else {
        println!("skipped: this process may not mount a file system");
        return;
    };
    let (source, mut place) = (Source::new(false), Place::new());
    place.dir = TempDir::new_in(disk.path()).unwrap();
    let build = disk.path().join("build");
    copy_files(source.dir.path(), &build);
    // There is less room than the version needs.
    let stat = rustix::fs::statvfs(disk.path()).unwrap();
    place.reserve_bytes = stat.f_bavail * stat.f_frsize - 1_000_000;
    place
        .fetch(
            LocationSource::new(Location::local(&build)),
            &control(),
            &Tuning::default(),
        )
        .unwrap();
    fs::File::create(build.join(source.data_file())).unwrap();
    place.assert_whole();
}

#[test]
fn an_unreadable_sector_is_reported_and_fetched_again() {
    let Some(disk) = Btrfs::mount() else {
        println!("skipped: this process may not mount a file system");
        return;
    };
    let (source, mut place) = (Source::new(false), Place::new());
    place.dir = TempDir::new_in(disk.path()).unwrap();
    place.fetched(&source);
    place.assert_whole();
    disk.unmount();
    // The file system's own checksum does not match any more: it returns an error instead of the bytes.
    let image = fs::read(disk.image()).unwrap();
    let needle = b"value 1234 xxx";
    let at = memchr::memmem::find(&image, needle).expect("the value is on the disk");
    let file = OpenOptions::new().write(true).open(disk.image()).unwrap();
    file.write_all_at(b"V", at as u64).unwrap();
    assert!(disk.mount_again());

    let version = Version::open(&place.version()).unwrap();
    let (mut right, mut errors) = (0, Vec::new());
    for n in 0..2000 {
        match version.get_owned(n.to_string().as_bytes()) {
            Ok(value) => {
                assert!(value.unwrap().starts_with(format!("value {n} ").as_bytes()));
                right += 1;
            }
            Err(error) => errors.push(error),
        }
    }
    assert!(right >= 1990, "{right}");
    assert!(
        !errors.is_empty() && errors.iter().all(|error| matches!(error, FormatError::Io { .. })),
        "{errors:?}"
    );
    assert_eq!(version.damaged().len(), 1);
    let mut position = Some(ScanPosition::START);
    let mut failed = false;
    while let Some(from) = position {
        match version.keys_from(from, 100) {
            Ok((_, next)) => position = next,
            Err(_) => (failed, position) = (true, None),
        }
    }
    assert!(failed, "a scan meets it, too");

    place.fetched(&source);
    drop(version);
    place.assert_whole();
}
