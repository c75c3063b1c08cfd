//! A description of the machine for readers of the figures.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine, and the versions of the measured programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// The model of the processor.
    pub cpu: String,
    /// The number of cores.
    pub cores: usize,
    /// The size of memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel.
    pub kernel: String,
    /// The file system and the device of the measured files.
    pub disk: String,
    /// Programs and libraries, with their versions.
    pub versions: Vec<String>,
}

impl Description {
    /// Describes this machine; `work` is the directory of the measured files.
    pub fn of_this_machine(work: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = memory
            .split_whitespace()
            .next()
            .and_then(|text| text.parse::<u64>().ok());
        let programs: [&[&str]; 7] = [
            &["redis-server", "--version"],
            &["valkey-server", "--version"],
            &["redis-benchmark", "--version"],
            &["fio", "--version"],
            &["mariadbd", "--version"],
            &["rustc", "--version"],
            &["git", "log", "-1", "--format=fondaco at %h"],
        ];
        let mut versions: Vec<String> = programs.iter().filter_map(|line| first_line(line)).collect();
        versions.push(format!("LMDB {} through heed", heed::lmdb_version().string));
        versions.extend(locked_versions(&["heed", "fjall"]));
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            disk: first_line(&[
                "findmnt",
                "-n",
                "-o",
                "SOURCE,FSTYPE",
                "-T",
                &work.display().to_string(),
            ])
            .unwrap_or_else(|| "unknown".into()),
            versions,
        }
    }
}

fn first_line(line: &[&str]) -> Option<String> {
    let output = Command::new(line[0]).args(&line[1..]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()?
        .trim()
        .to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The versions of crates, from the lock file of this program.
fn locked_versions(crates: &[&str]) -> Vec<String> {
    const LOCK: &str = include_str!("../../../Cargo.lock");
    let lines: Vec<&str> = LOCK.lines().collect();
    let version_of = |name: &str| {
        let wanted = format!("name = {name:?}");
        let at = lines.iter().position(|line| *line == wanted)?;
        let version = lines.get(at + 1)?.strip_prefix("version = ")?;
        Some(format!("{name} {}", version.trim_matches('"')))
    };
    crates.iter().filter_map(|name| version_of(name)).collect()
}
