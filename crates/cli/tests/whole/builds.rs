//! What a build takes of the machine.

use std::fs;
use std::process::{Child, Stdio};

use super::node::{fondaco, until, write_csv};

const MIB: u64 = 1 << 20;

/// The peak of the memory of a process so far, in bytes, or `None` if it has ended.
fn peak_memory_bytes(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

#[test]
fn a_build_takes_the_memory_that_it_may_and_little_more() {
    const FILES: u64 = 16;
    const ROWS: u64 = 16_000;
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input");
    fs::create_dir(&input).unwrap();
    for file in 0..FILES {
        let rows = (file * ROWS..(file + 1) * ROWS).map(|row| (row.to_string(), format!("{row:01000}")));
        write_csv(&input.join(format!("{file}.csv")), rows);
    }
    // Four times as much input as memory, and many threads, each of which loads, sorts and frees its share.
    let mut build = fondaco()
        .args(["build", "s", "--key", "key", "--value", "value", "--memory", "64MiB"])
        .args(["--threads", "16"])
        .arg("--output")
        .arg(directory.path().join("version"))
        .arg("--work")
        .arg(directory.path())
        .arg(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut peak, mut ended) = (0, None);
    until("the build ends", || {
        peak = peak.max(peak_memory_bytes(&build).unwrap_or(0));
        ended = build.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
    // The documentation promises 256 MiB, which is for large batches of columns. These rows need 64 MiB for the sort, some
    // 20 for the program, and 3 for each thread.
    let most = (64 + 20 + 16 * 3 + 28) * MIB;
    assert!(peak > 64 * MIB && peak < most, "{} MiB at the peak", peak / MIB);
}
