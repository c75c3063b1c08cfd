//! The control group of a node that `fondaco hook local` has started, of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";

/// The period over which processor time is counted, in microseconds.
const PERIOD_US: u64 = 100_000;

/// The group of a node. It need not exist.
pub struct Group {
    name: String,
    is_unified: bool,
}

impl Group {
    /// The group of a request.
    pub fn of(request: &str) -> Self {
        Self {
            name: format!("fondaco-{request}"),
            is_unified: Path::new(ROOT).join("cgroup.controllers").exists(),
        }
    }

    fn dir(&self, controller: &str) -> PathBuf {
        match self.is_unified {
            true => Path::new(ROOT).join(&self.name),
            false => Path::new(ROOT).join(controller).join(&self.name),
        }
    }

    /// Sets limits, also while the node runs, and makes the group if it is missing.
    ///
    /// # Errors
    /// Groups cannot be made or changed here.
    pub fn limit(&self, cores: Option<f64>, memory: Option<u64>) -> anyhow::Result<()> {
        if self.is_unified {
            // Enabled already, usually.
            let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+cpu +memory");
        }
        if let Some(cores) = cores {
            let quota = (cores * PERIOD_US as f64) as u64;
            match self.is_unified {
                true => self.write("cpu", "cpu.max", &format!("{quota} {PERIOD_US}"))?,
                false => self.write("cpu", "cpu.cfs_quota_us", &quota.to_string())?,
            }
        }
        if let Some(memory) = memory {
            let file = match self.is_unified {
                true => "memory.max",
                false => "memory.limit_in_bytes",
            };
            self.write("memory", file, &memory.to_string())?;
        }
        Ok(())
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> anyhow::Result<()> {
        let dir = self.dir(controller);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make the control group {dir:?}"))?;
        let path = dir.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write {path:?}"))
    }

    /// Puts a process into the group.
    ///
    /// # Errors
    /// The group cannot be written.
    pub fn enter(&self, pid: u32) -> anyhow::Result<()> {
        for dir in self.dirs().filter(|dir| dir.exists()) {
            let path = dir.join("cgroup.procs");
            fs::write(&path, pid.to_string()).with_context(|| format!("cannot write {path:?}"))?;
        }
        Ok(())
    }

    /// Removes the group, if it is there and empty.
    pub fn remove(&self) {
        for dir in self.dirs() {
            // One that cannot be removed does no harm.
            let _ = fs::remove_dir(dir);
        }
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        let controllers = match self.is_unified {
            true => &["cpu"][..],
            false => &["cpu", "memory"][..],
        };
        controllers.iter().map(|controller| self.dir(controller))
    }
}
