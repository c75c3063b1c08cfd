//! Facts that the operating system gives about this process and its memory. If it does not give one, the answer is
//! `None`, and nothing depends on it.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How much memory is resident, in bytes, mapped files included.
pub fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm")
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The boot ID of the machine, read from a file.
pub fn boot_id(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).inspect_err(|error| {
        tracing::warn!(?file, %error, "cannot read the boot ID: writes that a power failure loses are not noticed");
    });
    let text = text.ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// How many files are open.
pub fn open_files() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

/// How many files may be open.
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How much address space the process has, in bytes.
pub fn virtual_bytes() -> Option<u64> {
    stat_field(20)
}

/// How many threads the process has.
pub fn threads() -> Option<u64> {
    stat_field(17)
}

/// When the process started, in seconds since 1970.
pub fn started_unix_seconds() -> Option<f64> {
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

/// A field of `/proc/self/stat`, counted from the one after the program's name.
fn stat_field(place: usize) -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(place)?.parse().ok()
}

/// Page faults since the start: those served from memory, and those that read the disk.
pub fn page_faults() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name may contain any character; it ends at the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some((fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?))
}

/// Processor time used since the start, in seconds: user and system time.
pub fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// How much memory is resident that the system cannot take back by forgetting files, in bytes.
pub fn anonymous_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// How many bytes this process read from and wrote to disks since the start.
pub fn disk_bytes() -> Option<(u64, u64)> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((field("read_bytes:")?, field("write_bytes:")?))
}

/// How many cores this process may use: those of the machine that it may run on, or the quota of its control group, if
/// that is less. Groups may be changed while it runs.
pub fn cores() -> f64 {
    // Without its group: the standard library rounds a quota down.
    let allowed = rustix::thread::sched_getaffinity(None).map(|cores| cores.count());
    let machine = f64::from(allowed.unwrap_or(1).max(1));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let quotas = groups
        .lines()
        .flat_map(|line| group_dirs(line, "cpu"))
        .filter_map(|dir| quota(&dir));
    quotas.fold(machine, f64::min)
}

/// The quota of processor time of a control group, in cores; `None` if it has none.
fn quota(dir: &str) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(format!("{dir}/cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let number = |file: &str| {
        fs::read_to_string(format!("{dir}/{file}"))
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    let quota = number("cpu.cfs_quota_us")?;
    (quota > 0.0).then_some(quota / number("cpu.cfs_period_us")?)
}

/// How much memory this process may use, in bytes: that of the machine, or the limit of its control group if it is
/// lower.
pub fn memory_bytes() -> Option<u64> {
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

/// The files that may hold the memory limit of a control group, given its line of `/proc/self/cgroup`.
fn limit_files(line: &str) -> Vec<String> {
    let is_unified = line.split(':').nth(1) == Some("");
    let file = if is_unified {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    };
    let dirs = group_dirs(line, "memory").into_iter();
    dirs.map(|dir| format!("{dir}/{file}")).collect()
}

/// The directories of a control group, if it is one for this controller, given its line of `/proc/self/cgroup`: its own
/// and those of all groups above it, up to the root, where a container sees its own limits.
fn group_dirs(line: &str, controller: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let path = path.trim_end_matches('/');
    let root = match controllers {
        "" => "/sys/fs/cgroup".to_owned(),
        several if several.split(',').any(|one| one == controller) => format!("/sys/fs/cgroup/{controller}"),
        _ => return Vec::new(),
    };
    let groups = Path::new(path).ancestors().filter_map(Path::to_str);
    let groups = groups.map(|group| format!("{root}{}", group.trim_end_matches('/')));
    match path {
        "" => vec![root],
        _ => groups.collect(),
    }
}

/// Raises the limit of open files as far as the system allows: a version of a thousand chunks needs two thousand files,
/// and so does sorting a large version on many processors.
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
    fn limits_are_found_for_both_versions_of_control_groups() {
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
