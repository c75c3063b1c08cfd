//! Limits for some processes: control groups, version 1.
//!
//! Machines with only version 2 of control groups, or without permission for them, have no limits; rows that need one
//! report this and are not measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const ROOT: &str = "/sys/fs/cgroup";
const REMOVE_WAIT: Duration = Duration::from_secs(5);
/// In this time a group may use its share of the processors. The usual 100 ms would show as latencies.
const PROCESSORS_PERIOD: Duration = Duration::from_millis(20);

/// A control group, removed on drop when it is empty.
#[derive(Debug)]
pub struct ControlGroup {
    dir: PathBuf,
}

impl ControlGroup {
    /// A new group that limits all its processes and their page cache together to `limit_bytes`.
    pub fn of_memory(name: &str, limit_bytes: u64) -> Result<Self> {
        let group = Self::new("memory", name)?;
        group.set("memory.limit_in_bytes", limit_bytes)?;
        Ok(group)
    }

    /// A new group whose processes use as many processors as they like, until [`limit_cores`](Self::limit_cores).
    pub fn of_processors(name: &str) -> Result<Self> {
        let group = Self::new("cpu", name)?;
        group.set("cpu.cfs_period_us", PROCESSORS_PERIOD.as_micros() as u64)?;
        Ok(group)
    }

    fn new(controller: &str, name: &str) -> Result<Self> {
        let root = Path::new(ROOT).join(controller);
        ensure!(
            root.exists(),
            "no control groups (version 1) at {root:?}: rows with limits cannot run here"
        );
        let dir = root.join(format!("fondaco-bench-{}-{name}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("could not create {dir:?}: are you root?"))?;
        Ok(Self { dir })
    }

    fn set(&self, file: &str, value: u64) -> Result<()> {
        fs::write(self.dir.join(file), value.to_string()).with_context(|| format!("could not limit {:?}", self.dir))
    }

    /// Limits the processes to so many processors together.
    pub fn limit_cores(&self, cores: f64) -> Result<()> {
        let quota = PROCESSORS_PERIOD.as_micros() as f64 * cores;
        self.set("cpu.cfs_quota_us", quota as u64)
    }

    /// The file to which a process writes its id to join.
    pub fn processes_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The memory in use, in bytes.
    pub fn usage_bytes(&self) -> Result<u64> {
        Ok(fs::read_to_string(self.dir.join("memory.usage_in_bytes"))?
            .trim()
            .parse()?)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_WAIT;
        // A process that has ended leaves its group a moment later.
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
