//! What the operating system says of this process and its memory. Where it does not say, there is no
//! answer, and nothing depends on one.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How much memory is resident, in bytes, mapped files included.
pub(crate) fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm")
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Which boot of the machine this is, as a file says.
pub(crate) fn boot_id(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).inspect_err(|error| {
        tracing::warn!(?file, %error, "cannot know this boot of the machine: what a loss of power takes is not noticed by it");
    });
    let text = text.ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// How many files are open.
pub(crate) fn open_files() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

/// How many files may be open.
pub(crate) fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How much address space the process has, in bytes.
pub(crate) fn virtual_bytes() -> Option<u64> {
    stat_field(20)
}

/// How many threads the process has.
pub(crate) fn threads() -> Option<u64> {
    stat_field(17)
}

/// When the process started, in seconds since 1970.
pub(crate) fn started_unix_seconds() -> Option<f64> {
    let ticks = stat_field(19)? as f64 / rustix::param::clock_ticks_per_second() as f64;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(booted + ticks)
}

/// A field of `/proc/self/stat`, counted from the one behind the name of the program.
fn stat_field(place: usize) -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(place)?.parse().ok()
}

/// Page faults since the start: those answered from memory, and those that read the disk.
pub(crate) fn page_faults() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may hold anything, and ends at the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?))
}

/// Processor time used since the start, in seconds: by the program, and by the system for it.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// How much memory this process can have, in bytes: the machine's, or that of its control group if it
/// has less.
pub(crate) fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    });
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(limit_files);
    let group = limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// Where the memory limit of a control group may be, given its line of `/proc/self/cgroup`: that of the
/// group, and of all above it up to the root, which is where a container sees its own.
fn limit_files(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let path = path.trim_end_matches('/');
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let groups = Path::new(path).ancestors().filter_map(Path::to_str);
    let groups = groups.map(|group| format!("{root}{}/{file}", group.trim_end_matches('/')));
    match path {
        "" => vec![format!("{root}/{file}")],
        _ => groups.collect(),
    }
}

/// Allows as many open files as the system lets us: a version of a thousand chunks needs two thousand, and to sort one
/// that is large on many processors takes as many.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, ?limit, "cannot raise the limit on open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_where_both_kinds_of_control_groups_have_them() {
        let files = ["/a/b", "/a", ""].map(|group| format!("/sys/fs/cgroup{group}/memory.max"));
        assert_eq!(limit_files("0::/a/b"), files);
        assert_eq!(
            limit_files("8:memory:/a")[0],
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"
        );
        assert_eq!(limit_files("0::/")[0], "/sys/fs/cgroup/memory.max");
        assert!(limit_files("3:cpu:/a").is_empty() && limit_files("").is_empty());
    }

    #[test]
    fn a_running_process_has_memory_files_and_faults() {
        assert!(resident_bytes().unwrap() > 1 << 16);
        assert!(open_files().unwrap() >= 3);
        assert!(page_faults().unwrap().0 > 0);
        assert!(memory_bytes().unwrap() > 1 << 20);
        assert!(cpu_seconds().is_some());
        assert!(open_files_max().unwrap() >= open_files().unwrap());
        assert!(virtual_bytes().unwrap() >= resident_bytes().unwrap());
        assert!(threads().unwrap() >= 1);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let started = started_unix_seconds().unwrap();
        assert!(started < now + 2.0 && started > now - 86_400.0, "{started}");
    }
}
