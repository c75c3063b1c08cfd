//! The threads of a node that carry events from sources to overlays: a fixed number, for any number of stores.
//!
//! A thread takes one step at a time: it reads about 128 KiB of one topic partition, and applies it. The next step
//! is one of the overlay that fewest threads work for, and among those of the one that has waited longest. So one
//! busy store may use all threads, many stores share them, and a partition that waits for its source delays no other
//! store for longer than one step.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use fondaco_os::priority;
use parking_lot::Mutex;

use crate::alarm::Alarm;
use crate::clock::ClockReading;
use crate::error::StreamError;
use crate::feed::{Feed, IDLE_MAX, IDLE_MIN};

/// The threads, and all that they feed.
pub struct Ingest {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Called with the bytes that a step has read; the next step begins when it returns.
pub type Pace = Box<dyn Fn(u64) + Send + Sync>;

struct Shared {
    pace: Pace,
    feeds: Mutex<Vec<Arc<Feed>>>,
    is_ended: AtomicBool,
    alarm: Arc<Alarm>,
}

impl Ingest {
    /// Starts this number of threads, which read as fast as they can.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::start_paced(threads, Box::new(|_| ()))
    }

    /// Starts this number of threads, each of which calls `pace` after a step to leave time to other work.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start_paced(threads: usize, pace: Pace) -> io::Result<Self> {
        let shared = Shared {
            pace,
            feeds: Mutex::default(),
            is_ended: AtomicBool::new(false),
            alarm: Arc::default(),
        };
        let ingest = Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
        };
        for number in 1..=threads.max(1) {
            let shared = Arc::clone(&ingest.shared);
            let thread = std::thread::Builder::new().name(format!("ingest-{number}"));
            let run = move || {
                // The threads of librdkafka, which this one starts, inherit it.
                priority::let_loops_go_first();
                run(&shared);
            };
            ingest.threads.lock().push(thread.spawn(run)?);
        }
        Ok(ingest)
    }

    /// Sets what is fed. Steps under way of others are finished.
    pub fn set_feeds(&self, feeds: Vec<Arc<Feed>>) {
        let former = std::mem::replace(&mut *self.shared.feeds.lock(), feeds);
        self.shared.alarm.ring_all();
        drop(former);
    }

    /// Ends all threads, each after its present step.
    pub fn close(&self) {
        self.shared.is_ended.store(true, Relaxed);
        self.shared.alarm.ring_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The thread has panicked, and logged it.
            let _ = thread.join();
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(shared: &Shared) {
    loop {
        let (records, changes) = shared.alarm.take();
        // Checked after taking the alarm: a thread that is about to wait must not miss the end.
        if shared.is_ended.load(Relaxed) {
            return;
        }
        let all = shared.feeds.lock().clone();
        for (reader, partition) in records {
            if let Some(feed) = all.iter().find(|feed| feed.is_reader(reader)) {
                feed.wake(reader, partition, Instant::now());
            }
        }
        match take_step(&all, &shared.alarm, &ClockReading::now) {
            Some(0) => {}
            Some(bytes) => (shared.pace)(bytes),
            // Most nodes have no hybrid store: their threads sleep.
            None if all.is_empty() => shared.alarm.wait(changes, None),
            None => {
                let now = Instant::now();
                let next = all.iter().map(|feed| feed.next_due(now)).min();
                let wait = next.map_or(IDLE_MAX, |due| due.saturating_duration_since(now));
                shared.alarm.wait(changes, Some(wait.clamp(IDLE_MIN, IDLE_MAX)));
            }
        }
    }
}

/// Takes the next step of these feeds, by these clocks. A thread of an [`Ingest`] repeats it. Returns about how many
/// bytes it has read; `None` if no step was due.
pub fn take_step(feeds: &[Arc<Feed>], alarm: &Arc<Alarm>, clocks: &dyn Fn() -> ClockReading) -> Option<u64> {
    let now = clocks();
    let mut feeds: Vec<_> = feeds.iter().collect();
    feeds.sort_by_cached_key(|feed| feed.turn());
    let (feed, cursor) = feeds.into_iter().find_map(|feed| match feed.takes_look(now.at) {
        true => Some((feed, None)),
        false => Some((feed, Some(feed.take(now.at)?))),
    })?;
    let Some(cursor) = cursor else {
        feed.looked(&unless_panicked(|| feed.look(now)), now);
        return Some(0);
    };
    let step = unless_panicked(|| feed.step(cursor, alarm, now));
    let bytes = step.as_ref().map_or(0, |step| step.bytes);
    feed.done(cursor, step, clocks());
    Some(bytes)
}

/// Catches a panic of a step, which must not end the thread: other feeds need it.
fn unless_panicked<T>(step: impl FnOnce() -> Result<T, StreamError>) -> Result<T, StreamError> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(step));
    done.unwrap_or(Err(StreamError::Panicked))
}
