//! A control group with little processor time, like a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The period over which processor time is counted, in microseconds: the usual one. Small shares of a much shorter one would be
/// less than the 5 ms that the kernel hands to a processor at a time.
const PERIOD_US: u64 = 100_000;

/// A control group with a quota of processor time, of version 1 or 2. It is removed when this is dropped.
pub struct CpuGroup {
    dir: PathBuf,
    is_first: bool,
}

impl CpuGroup {
    /// A group with this number of cores.
    ///
    /// # Errors
    /// No group can be made, for example without the rights of root.
    pub fn new(name: &str, cores: f64) -> Result<Self, String> {
        let is_first = Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
            || Path::new("/sys/fs/cgroup/cpu/cgroup.procs").exists();
        let root = if is_first {
            "/sys/fs/cgroup/cpu"
        } else {
            "/sys/fs/cgroup"
        };
        if !is_first {
            // Usually enabled already.
            let _ = fs::write(Path::new(root).join("cgroup.subtree_control"), "+cpu");
        }
        let dir = Path::new(root).join(format!("fondaco-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("cannot make {dir:?}: {error}"))?;
        let group = Self { dir, is_first };
        group.set(cores)?;
        Ok(group)
    }

    /// Sets its number of cores from now on.
    ///
    /// # Errors
    /// The quota cannot be written.
    pub fn set(&self, cores: f64) -> Result<(), String> {
        let quota = (cores * PERIOD_US as f64) as u64;
        let (file, text) = match self.is_first {
            true => ("cpu.cfs_quota_us", quota.to_string()),
            false => ("cpu.max", format!("{quota} {PERIOD_US}")),
        };
        let file = self.dir.join(file);
        fs::write(&file, text).map_err(|error| format!("cannot write {file:?}: {error}"))
    }

    /// The file to which a process writes its number to join.
    pub fn processes_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// A command that runs another one in the group: its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.processes_file());
        command
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // A process that has ended leaves the group a moment later.
        let ends = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < ends {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
