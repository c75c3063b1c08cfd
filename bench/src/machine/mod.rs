//! The machine that the benchmark runs on: processes, disk, memory limits, description.

pub mod description;
pub mod dialogue;
pub mod disk;
pub mod memory_group;
pub mod process;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processes that use less than a tenth of a core for this time have finished their background work.
const SETTLED: Duration = Duration::from_millis(200);
const SETTLING_MAX: Duration = Duration::from_secs(10);

/// Waits, up to a limit, until processes have finished their background work. Returns the CPU time used by then.
pub fn settled(cpu_time: impl Fn() -> Result<Duration>) -> Result<Duration> {
    let began = Instant::now();
    let mut before = cpu_time()?;
    loop {
        std::thread::sleep(SETTLED);
        let now = cpu_time()?;
        if now.saturating_sub(before) <= SETTLED / 10 || began.elapsed() > SETTLING_MAX {
            return Ok(now);
        }
        before = now;
    }
}

/// A free port on the loopback interface. Another process may take it first: the process that needs it will report
/// that.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Pins the calling thread to one core.
pub fn pin_thread(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Calls a function that starts processes: these are pinned to one core, this thread is not.
pub fn on_cpu<T>(cpu: usize, start: impl FnOnce() -> T) -> Result<T> {
    let all = sched_getaffinity(None)?;
    pin_thread(cpu)?;
    let started = start();
    sched_setaffinity(None, &all)?;
    Ok(started)
}

/// Raises the priority of the calling thread, if permitted, and lets it run soon after it wakes up, so that latencies are
/// those of the server, not those of a load generator that waits for a core.
pub fn prefer_thread() {
    let _ = rustix::process::nice(-10);
    fondaco_os::priority::wake_soon();
}

/// The cores that this process may use.
pub fn cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}
