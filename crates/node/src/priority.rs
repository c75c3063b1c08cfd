//! Live traffic comes first: who gets the processor when several threads want it.
//!
//! Threads that fetch get little beside an event loop, and an event loop that wakes up does not wait for
//! the time slice of another thread to end. Where the system refuses, all run as usual.

use std::io;

/// The time slice that an event loop asks for, in nanoseconds: the least that Linux gives. A thread
/// with a shorter slice has an earlier deadline, and preempts others when it wakes up (EEVDF, Linux 6.12).
const LOOP_SLICE_NS: u64 = 100_000;

/// Lets this thread run soon after it wakes up, though not for longer than others.
pub(crate) fn wake_soon() {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice(),
        sched_priority: 0,
        sched_runtime: LOOP_SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: it changes how this thread is scheduled, and reads the attributes, which live on and say
    // their own size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "an event loop runs with the usual time slice");
    }
}

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
