//! Whether a process runs, and the events that it receives.

/// The state of a process.
#[derive(Debug)]
pub(crate) struct Running<E> {
    pub(crate) is_up: bool,
    /// The number of its current life: events for an earlier life do not reach it.
    pub(crate) life: u32,
    /// It is paused until this time; events that reach it meanwhile wait.
    pub(crate) stopped_until: u64,
    waiting: Vec<E>,
}

/// The reaction to an event for a process.
pub(crate) enum Receipt<E> {
    /// It happens now.
    Now(E),
    /// It waits until the process is resumed.
    Waits,
    /// The process, or that life of it, has ended.
    Gone(E),
}

impl<E> Running<E> {
    /// A process that runs.
    pub(crate) fn new() -> Self {
        Self {
            is_up: true,
            life: 0,
            stopped_until: 0,
            waiting: Vec::new(),
        }
    }

    /// Whether it is up, and not paused.
    pub(crate) fn is_running(&self, now: u64) -> bool {
        self.is_up && self.stopped_until <= now
    }

    /// An event for one of its lives arrives.
    pub(crate) fn receive(&mut self, life: u32, event: E, now: u64) -> Receipt<E> {
        if !self.is_up || self.life != life {
            return Receipt::Gone(event);
        }
        if !self.is_running(now) {
            self.waiting.push(event);
            return Receipt::Waits;
        }
        Receipt::Now(event)
    }

    /// It ends. Returns the events that waited.
    pub(crate) fn end(&mut self) -> Vec<E> {
        (self.is_up, self.stopped_until) = (false, 0);
        self.life += 1;
        std::mem::take(&mut self.waiting)
    }

    /// It is resumed. Returns the events that waited.
    pub(crate) fn resume(&mut self) -> Vec<E> {
        self.stopped_until = 0;
        std::mem::take(&mut self.waiting)
    }
}
