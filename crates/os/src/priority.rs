//! Live traffic comes first: an event loop that wakes up does not wait for the time slice of another thread to end, nor
//! does a thread that reads the disk for it. If the system refuses the request, the thread runs as usual.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};

/// The time slice that such a thread asks for, in nanoseconds: the least that Linux gives. A thread
/// with a shorter slice has an earlier deadline, and preempts others when it wakes up (EEVDF, Linux 6.12).
const LOOP_SLICE_NS: u64 = 100_000;

/// Lets this thread run soon after it wakes up, but not for longer than other threads.
pub fn wake_soon() {
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
    // SAFETY: the call changes how this thread is scheduled, and reads the attributes, which outlive the call and
    // contain their own size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "a thread that answers requests runs with the usual time slice");
    }
}

/// Lets this thread run only in time that event loops leave, as far as there is any.
pub fn let_loops_go_first() {
    /// Of two threads that differ by this, one gets a tenth of the processor.
    const NICER: i32 = 10;
    if let Err(error) = setpriority_process(None, (nice() + NICER).min(19)) {
        tracing::debug!(%error, "a thread for computations runs with the usual priority");
    }
}

/// The nice value of this thread, from -20 to 19, so that it stays unchanged.
fn nice() -> i32 {
    getpriority_process(None).unwrap_or(0)
}
