//! Live traffic comes first: threads that fetch get little of a processor that an event loop also needs.

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of threads that fetch. If one of them and one event loop compete for a processor, the thread gets a
/// tenth of the time. With an idle class (`SCHED_IDLE`) it would get a third of a percent, so that pushes starved when
/// reads took the whole processor.
const FETCH_NICE: i32 = 10;

/// Lowers the priority of this thread: it yields to ordinary threads when they wake up, and gets a small share beside
/// them.
///
/// Never call it in a thread that may hold a lock for which live traffic waits.
pub(crate) fn step_back() {
    let nice = FETCH_NICE.max(nice());
    // On Linux this affects only this thread, not the whole process.
    if let Err(error) = setpriority_process(None, nice) {
        tracing::debug!(%error, "a fetch runs at the priority of live traffic");
    }
}

/// The nice value of this thread, from -20 to 19, which is kept.
fn nice() -> i32 {
    getpriority_process(None).unwrap_or(0)
}
