//! Live traffic comes first: an event loop that wakes up does not wait for the time slice of another thread to end, nor
//! does a thread that reads the disk for it. If the system refuses the request, the thread runs as usual.

use std::io;

use rustix::process::getpriority_process;

/// The time slice that a thread which answers requests asks for, in nanoseconds: the least that Linux gives. A thread
/// with a shorter slice has an earlier deadline, and preempts others when it wakes up (EEVDF, Linux 6.12).
const LOOP_SLICE_NS: u64 = 100_000;

/// The time slice of background work: longer than that of loops, which therefore preempt it, and short, since a thread that
/// [gives way](give_way) gives the rest of its slice up (Linux 6.18).
const BACKGROUND_SLICE_NS: u64 = 200_000;

/// Lets this thread run soon after it wakes up, but not for longer than other threads.
pub fn wake_soon() {
    set(nice(), LOOP_SLICE_NS);
}

/// Lets this thread, and those that it starts later, run only in time that event loops leave, as far as there is any.
///
/// Never call it in a thread that may have a lock for long for which live traffic waits.
pub fn let_loops_go_first() {
    /// Beside a thread of nice 0, one gets a tenth of the processor. In the idle class it would get a third of a percent: pushes
    /// starved beside readers that took the whole processor.
    const NICE: i32 = 10;
    set(nice().max(NICE), BACKGROUND_SLICE_NS);
}

/// Lets an event loop run that waits for this processor. Background work calls it every 0.1 ms or so, without a lock: if a loop that
/// wakes up has had more than its share of late, Linux does not let it run, and decides again only at the next tick of its
/// clock, some milliseconds later.
pub fn give_way() {
    std::thread::yield_now();
}

/// Sets the nice value of this thread and the time slice that it asks for.
fn set(nice: i32, slice_ns: u64) {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call changes how this thread is scheduled, and reads the attributes, which outlive the call and
    // contain their own size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "a thread runs with the usual priority and time slice");
    }
}

/// The nice value of this thread, from -20 to 19.
fn nice() -> i32 {
    getpriority_process(None).unwrap_or(0)
}
