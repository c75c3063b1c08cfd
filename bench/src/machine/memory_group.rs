//! A memory limit for some processes including their page cache: a control group, version 1.
//!
//! Machines with only version 2 of control groups, or without permission for them, have no limit; rows that need one
//! report this and are not measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const ROOT: &str = "/sys/fs/cgroup/memory";
const REMOVE_WAIT: Duration = Duration::from_secs(5);

/// A control group with a memory limit, removed on drop when it is empty.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    /// A new group that limits all its processes and their page cache together to `limit_bytes`.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self> {
        ensure!(
            Path::new(ROOT).join("memory.limit_in_bytes").exists(),
            "no memory control groups (version 1) at {ROOT}: rows with data larger than memory cannot run here"
        );
        let dir = Path::new(ROOT).join(format!("fondaco-bench-{}-{name}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("could not create {dir:?}: are you root?"))?;
        let group = Self { dir };
        fs::write(group.dir.join("memory.limit_in_bytes"), limit_bytes.to_string())
            .with_context(|| format!("could not limit {:?}", group.dir))?;
        Ok(group)
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

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_WAIT;
        // A process that has ended leaves its group a moment later.
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
