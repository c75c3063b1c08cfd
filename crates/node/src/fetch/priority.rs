//! Live traffic comes first: threads that fetch run when no event loop wants the processor.

/// Puts this thread behind all ordinary ones: it runs on otherwise idle processors, and gives way at
/// once. On a machine without any idle time it still gets a small share.
///
/// Never call it in a thread that holds a lock which live traffic may wait for.
pub(super) fn step_back() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: it changes how this thread is scheduled, and reads one parameter, which lives on.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "a fetch runs at the priority of live traffic");
    }
}
