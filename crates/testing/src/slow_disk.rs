//! A disk that is slow for one process, by a control group of the kernel's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::{major, minor};

/// Where groups that throttle disks are made, in the first version of control groups.
const GROUPS: &str = "/sys/fs/cgroup/blkio";

static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A group whose processes wait for the disk. Dropping it lets them go.
pub struct SlowDisk {
    group: PathBuf,
    device: String,
}

impl SlowDisk {
    /// For reads of the disk that this directory is on; as fast as ever until it is [slowed](Self::slow).
    /// `None` where this process may make no such group, or the directory is on no disk.
    pub fn of(dir: &Path) -> Option<Self> {
        let device = fs::metadata(dir).ok()?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        let number = NUMBERS.fetch_add(1, Relaxed);
        let group = Path::new(GROUPS).join(format!("fondaco-{}-{number}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let disk = Self { group, device };
        disk.allow_reads_per_second(0).then_some(disk)
    }

    /// From now on a process waits until its reads are due, all its threads together: so few a second.
    ///
    /// # Panics
    /// If the process is gone, or the group refuses.
    pub fn slow(&self, process: u32, reads_per_second: u32) {
        let put = fs::write(self.group.join("cgroup.procs"), process.to_string());
        put.unwrap_or_else(|error| panic!("cannot put process {process} into {:?}: {error}", self.group));
        assert!(self.allow_reads_per_second(reads_per_second), "{:?}", self.group);
    }

    /// 0 is as many as the disk can.
    fn allow_reads_per_second(&self, reads: u32) -> bool {
        let rule = format!("{} {reads}", self.device);
        fs::write(self.group.join("blkio.throttle.read_iops_device"), rule).is_ok()
    }

    /// Has the kernel forget what it holds of the files in a directory, which nobody has touched since they
    /// were opened.
    ///
    /// # Panics
    /// If a file cannot be had.
    pub fn forget_files(dir: &Path) {
        for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("cannot list {dir:?}: {error}")) {
            let path = entry
                .unwrap_or_else(|error| panic!("cannot list {dir:?}: {error}"))
                .path();
            let mut of = std::ffi::OsString::from("of=");
            of.push(&path);
            let forgotten = Command::new("dd")
                .arg(of)
                .args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"])
                .status();
            assert!(
                forgotten.is_ok_and(|status| status.success()),
                "dd cannot have {path:?} forgotten"
            );
        }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // What waits goes on, so that nobody has to wait for its end; then the group is left, and can go.
        self.allow_reads_per_second(0);
        let members = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(Path::new(GROUPS).join("cgroup.procs"), member);
        }
        let _ = fs::remove_dir(&self.group);
    }
}
