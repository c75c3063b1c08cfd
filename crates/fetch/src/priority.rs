//! Live traffic comes first: threads that fetch get little of a processor beside an event loop.

use std::io;

/// How nice threads are that fetch. A processor that is wanted by one of them and by one event loop goes to it for a tenth
/// of the time: an idle class (`SCHED_IDLE`) has it for a third of a percent, so that pushes starved where readers took all.
const FETCH_NICE: i32 = 10;

/// Puts this thread behind ordinary ones: it gives way to them when they wake up, and gets a small share beside them.
///
/// Never call it in a thread that holds a lock which live traffic may wait for.
pub(crate) fn step_back() {
    let nice = FETCH_NICE.max(nice());
    // SAFETY: it changes how this thread is scheduled, and nothing else: on Linux, 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "a fetch runs at the priority of live traffic");
    }
}

/// How nice this thread is now, from -20 to 19: it stays so.
fn nice() -> i32 {
    // SAFETY: it only reads how this thread is scheduled.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}
