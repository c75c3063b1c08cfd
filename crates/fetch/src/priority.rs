//! Live traffic comes first: threads that fetch get little of a processor beside an event loop.

use rustix::process::{getpriority_process, setpriority_process};

/// How nice threads are that fetch. A processor that is wanted by one of them and by one event loop goes to it for a tenth
/// of the time: an idle class (`SCHED_IDLE`) has it for a third of a percent, so that pushes starved where readers took all.
const FETCH_NICE: i32 = 10;

/// Puts this thread behind ordinary ones: it gives way to them when they wake up, and gets a small share beside them.
///
/// Never call it in a thread that holds a lock which live traffic may wait for.
pub(crate) fn step_back() {
    let nice = FETCH_NICE.max(nice());
    // On Linux that is this thread, and no other of the process.
    if let Err(error) = setpriority_process(None, nice) {
        tracing::debug!(%error, "a fetch runs at the priority of live traffic");
    }
}

/// How nice this thread is now, from -20 to 19: it stays so.
fn nice() -> i32 {
    getpriority_process(None).unwrap_or(0)
}
