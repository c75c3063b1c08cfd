//! A disk that is slow for one process, by a control group.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::{major, minor};

/// Where version 1 of control groups has the groups that throttle disks.
const GROUPS: &str = "/sys/fs/cgroup/blkio";

static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A group whose processes are throttled. Dropping it removes them from the group.
pub struct SlowDisk {
    group: PathBuf,
    device: String,
}

impl SlowDisk {
    /// For reads from the disk of this directory; not throttled until it is [slowed](Self::slow). `None` if this
    /// process may not create such a group, or the directory is not on a disk.
    pub fn of(dir: &Path) -> Option<Self> {
        let device = fs::metadata(dir).ok()?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        let number = NUMBERS.fetch_add(1, Relaxed);
        let group = Path::new(GROUPS).join(format!("fondaco-{}-{number}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let disk = Self { group, device };
        disk.allow_reads_per_second(0).then_some(disk)
    }

    /// Limits a process, all its threads together, to this many reads per second.
    ///
    /// # Panics
    /// If the process is gone, or the group refuses.
    pub fn slow(&self, process: u32, reads_per_second: u32) {
        let put = fs::write(self.group.join("cgroup.procs"), process.to_string());
        put.unwrap_or_else(|error| panic!("cannot put process {process} into {:?}: {error}", self.group));
        assert!(self.allow_reads_per_second(reads_per_second), "{:?}", self.group);
    }

    /// 0 is no limit.
    fn allow_reads_per_second(&self, reads: u32) -> bool {
        let rule = format!("{} {reads}", self.device);
        fs::write(self.group.join("blkio.throttle.read_iops_device"), rule).is_ok()
    }

    /// Evicts the files in a directory from the page cache; no process may have changed them since they were opened.
    ///
    /// # Panics
    /// If a file cannot be opened.
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
                "dd cannot evict {path:?} from the page cache"
            );
        }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Releases waiting reads first, since the process can only leave the group after them; then the group can be
        // removed.
        self.allow_reads_per_second(0);
        let members = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = fs::write(Path::new(GROUPS).join("cgroup.procs"), member);
        }
        let _ = fs::remove_dir(&self.group);
    }
}
