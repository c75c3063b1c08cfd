//! A memory limit for some processes, page cache included: a control group, version 1.
//!
//! Machines with control groups of version 2 only, or without rights on them, have no limit, and
//! what needs one says so and is not measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

const ROOT: &str = "/sys/fs/cgroup/memory";
const REMOVE_WAIT: Duration = Duration::from_secs(5);

/// A control group with a limit of memory. Dropping it removes it, once it is empty.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    /// A new group in which all processes and their page cache together may take `limit_bytes`.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self> {
        ensure!(
            Path::new(ROOT).join("memory.limit_in_bytes").exists(),
            "no memory control groups (version 1) at {ROOT}: data larger than memory cannot be arranged here"
        );
        let dir = Path::new(ROOT).join(format!("fondaco-bench-{}-{name}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("could not create {dir:?}: are you root?"))?;
        let group = Self { dir };
        fs::write(group.dir.join("memory.limit_in_bytes"), limit_bytes.to_string())
            .with_context(|| format!("could not limit {:?}", group.dir))?;
        Ok(group)
    }

    /// Where a process writes its id to enter.
    pub fn processes_file(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// How much of the limit is taken, in bytes.
    pub fn usage_bytes(&self) -> Result<u64> {
        Ok(fs::read_to_string(self.dir.join("memory.usage_in_bytes"))?
            .trim()
            .parse()?)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_WAIT;
        // An ended process leaves its group a moment later.
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
