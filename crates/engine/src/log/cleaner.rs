//! The background thread of the log. It periodically syncs new writes, and frees the space of overwritten records by
//! [moving](super::segment_cleaning) the live records of a segment to the end of the log.
//!
//! The segment is chosen by cost and benefit, as in Rosenblum and Ousterhout, The Design and Implementation of a
//! Log-Structured File System (1992), section 3.5: `(1 - u) * age / (1 + u)`, where `u` is the live share.
//!
//! A tombstone is needed until no older segment is left, and an older segment may be full of records that are never
//! overwritten. So when there are too many tombstones, the oldest segment is moved, whatever its content: all
//! tombstones in it are obsolete by then.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Shared;
use super::segment::Segment;
use super::writer::{Age, Full, SegmentState, Use, Writer};
use crate::error::EngineError;
use crate::failure;

/// How many segments of garbage are tolerated, whatever their share is.
const SEGMENTS_SPARED: u64 = 4;
/// The number of batches between two checks of the amount of garbage.
const BATCHES_BETWEEN: u32 = 64;
/// The share of tombstones above which the oldest segment is moved, if they also exceed the tolerated amount.
const DELETIONS_PERCENT_MAX: u64 = 25;
/// When the disk is full, segments are cleaned while the garbage exceeds this share.
const HURRIED_PERCENT: u64 = 10;
/// Writers wait when the log exceeds this multiple of its live data, and of the tolerated amount; and when the
/// tombstones exceed this multiple of the other live data.
const BEHIND_TIMES: u64 = 4;
/// How long a write waits for cleaning.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(60);
/// The interval between syncs, if no sync was requested. To sync the writes of a whole second is one system call, which
/// uses a processor for at least ten milliseconds.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// The delay before a retry after a disk error.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The thread has a lower priority than the threads that serve clients, but not the lowest.
const NICE: i32 = 5;

/// The requests of the writer to the thread.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether writers must wait.
    is_behind: AtomicBool,
    hurries: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    full: VecDeque<Full>,
    /// The number of a segment to create.
    wanted: Option<u32>,
    is_preparing: bool,
    prepared: Option<Segment>,
    wants_cleaning: bool,
    has_ended: bool,
}

impl Cleaning {
    /// Hands over a full segment.
    pub(super) fn seal(&self, full: Full) {
        self.state.lock().full.push_back(full);
        self.changed.notify_all();
    }

    /// Whether there are full segments that are not sealed yet.
    fn has_full(&self) -> bool {
        !self.state.lock().full.is_empty()
    }

    /// Takes a full segment that is not sealed yet.
    pub(super) fn take_full(&self) -> Option<Full> {
        self.state.lock().full.pop_front()
    }

    /// Requests a segment that will be needed soon: creating one waits for the disk.
    pub(super) fn prepare(&self, number: u32) {
        self.state.lock().wanted = Some(number);
        self.changed.notify_all();
    }

    /// Takes the created segment, if it has this number. Waits if the segment is being created.
    pub(super) fn take_prepared(&self, number: u32) -> Option<Segment> {
        let mut state = self.state.lock();
        state.wanted = None;
        self.changed.wait_while(&mut state, |state| state.is_preparing);
        state.prepared.take_if(|segment| segment.number() == number)
    }

    /// Whether writers must wait.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed)
    }

    fn set_behind(&self, is_behind: bool) {
        if is_behind != self.is_behind.swap(is_behind, Relaxed) {
            self.state.lock().wants_cleaning |= is_behind;
            self.changed.notify_all();
        }
    }

    /// The disk is full: free all the space that can be freed.
    pub(super) fn hurry(&self) {
        if !self.hurries.swap(true, Relaxed) {
            self.want();
        }
    }

    fn want(&self) {
        self.state.lock().wants_cleaning = true;
        self.changed.notify_all();
    }

    /// To be called after a write or after dropping a table.
    pub(super) fn wrote(&self, writer: &mut Writer, segment_bytes: u64) {
        // A few batches may create much garbage, and later writes may be refused until it is gone.
        if writer.garbage_made_bytes >= segment_bytes {
            writer.garbage_made_bytes = 0;
            self.want();
        }
        // There are few segments, but too many to sum up after each batch.
        let is_turn = |batches: u32| batches.is_multiple_of(BATCHES_BETWEEN);
        if writer.active.as_ref().is_some_and(|active| is_turn(active.batches)) {
            self.set_behind(Amount::of(writer, segment_bytes).is_behind());
        }
    }

    fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }
}

/// The amount of data in the log.
#[derive(Debug, Clone, Copy)]
struct Amount {
    bytes: u64,
    garbage_bytes: u64,
    /// Tombstones that are still needed, but become obsolete when older segments are moved; 0 if the oldest segment has
    /// to stay.
    deletion_bytes: u64,
    spared_bytes: u64,
}

impl Amount {
    fn of(writer: &Writer, segment_bytes: u64) -> Self {
        let mut amount = Self {
            bytes: 0,
            garbage_bytes: 0,
            deletion_bytes: 0,
            spared_bytes: SEGMENTS_SPARED * segment_bytes,
        };
        let oldest_goes = writer.uses.values().next().is_some_and(Use::goes);
        for (age, used) in writer.uses_by_age() {
            amount.bytes += used.bytes;
            amount.garbage_bytes += used.garbage_bytes(&age);
            if oldest_goes && used.goes() {
                amount.deletion_bytes += used.kept_deletion_bytes(&age);
            }
        }
        amount
    }

    fn is_behind(&self) -> bool {
        self.has_garbage_behind() || self.has_deletions_behind()
    }

    fn has_garbage_behind(&self) -> bool {
        let used = self.bytes - self.garbage_bytes;
        self.bytes > (used * BEHIND_TIMES).max(2 * self.spared_bytes)
    }

    fn has_deletions_behind(&self) -> bool {
        let others = self.bytes - self.garbage_bytes - self.deletion_bytes;
        self.deletion_bytes > others.max(self.spared_bytes) * BEHIND_TIMES
    }

    fn wants_cleaning(&self, garbage_percent_max: u64, hurries: bool) -> bool {
        match hurries {
            true => self.garbage_bytes * 100 > self.bytes * HURRIED_PERCENT,
            false => {
                let is_much = self.garbage_bytes * 100 > self.bytes * garbage_percent_max;
                self.garbage_bytes > self.spared_bytes && is_much || self.has_garbage_behind()
            }
        }
    }

    fn wants_the_oldest_moved(&self, hurries: bool) -> bool {
        match hurries {
            // If writers wait for garbage, it is cleaned first: a tombstone may only become obsolete after all the
            // older segments are moved.
            _ if self.has_garbage_behind() => false,
            true => self.deletion_bytes * 100 > self.bytes * HURRIED_PERCENT,
            false => {
                let is_much = self.deletion_bytes * 100 > self.bytes * DELETIONS_PERCENT_MAX;
                self.deletion_bytes > self.spared_bytes && is_much || self.has_deletions_behind()
            }
        }
    }
}

/// The background thread. Dropping this stops the thread and waits for it.
pub(super) struct Cleaner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Cleaner {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, EngineError> {
        let theirs = Arc::downgrade(shared);
        let cleaning = Arc::clone(&shared.cleaning);
        let thread = thread::Builder::new().name("engine-clean".into()).spawn(move || {
            // If the system refuses, the thread keeps the normal priority.
            let _ = rustix::process::nice(NICE);
            run(&theirs, &cleaning);
        });
        Ok(Self {
            shared: Arc::clone(shared),
            thread: Some(thread.map_err(|error| failure::io("start a thread for", &shared.dir, error))?),
        })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.shared.cleaning.end();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic was already reported.
            let _ = thread.join();
        }
    }
}

enum Step {
    Sync,
    Prepare(u32),
    Seal(Full),
    Clean,
    End,
}

fn run(shared: &Weak<Shared>, cleaning: &Cleaning) {
    let mut last_sync = Instant::now();
    loop {
        let step = next_step(cleaning);
        let (Some(shared), false) = (shared.upgrade(), matches!(step, Step::End)) else {
            return;
        };
        let done = catch_unwind(AssertUnwindSafe(|| match step {
            Step::Prepare(number) => shared.prepare(number),
            Step::Seal(full) => shared.seal(full),
            Step::Clean => shared.clean(),
            Step::Sync | Step::End => Ok(()),
        }));
        let done = match done {
            Ok(Ok(())) if last_sync.elapsed() >= SYNC_EVERY => {
                last_sync = Instant::now();
                Ok(shared.sync())
            }
            done => done,
        };
        if !matches!(done, Ok(Ok(()))) {
            let mut state = cleaning.state.lock();
            // The step may have panicked, and the segment still needs cleaning.
            state.is_preparing = false;
            state.wants_cleaning = true;
            cleaning.changed.notify_all();
            cleaning
                .changed
                .wait_while_for(&mut state, |state| !state.has_ended, TRY_AGAIN);
        }
    }
}

fn next_step(cleaning: &Cleaning) -> Step {
    let idle = |state: &mut State| {
        !state.has_ended && !state.wants_cleaning && state.full.is_empty() && state.wanted.is_none()
    };
    let mut state = cleaning.state.lock();
    let waited = cleaning.changed.wait_while_for(&mut state, idle, SYNC_EVERY);
    // Segments that are not sealed are read when the engine is opened again.
    if state.has_ended {
        return Step::End;
    }
    if waited.timed_out() {
        return Step::Sync;
    }
    if let Some(number) = state.wanted.take() {
        state.is_preparing = true;
        // The cleaning may have been interrupted for this.
        state.wants_cleaning = true;
        return Step::Prepare(number);
    }
    match state.full.pop_front() {
        Some(full) => {
            state.wants_cleaning = true;
            Step::Seal(full)
        }
        None => {
            state.wants_cleaning = false;
            Step::Clean
        }
    }
}

impl Shared {
    /// Waits while there is too much garbage in the log.
    pub(super) fn wait_for_room(&self) -> Result<(), EngineError> {
        let cleaning = &self.cleaning;
        if !cleaning.is_behind() {
            return Ok(());
        }
        let is_behind = |_: &mut State| cleaning.is_behind();
        let mut state = cleaning.state.lock();
        cleaning.changed.wait_while_for(&mut state, is_behind, ROOM_WAIT_MAX);
        drop(state);
        match cleaning.is_behind() {
            true => Err(EngineError::Behind {
                dir: self.dir.clone(),
                waited_seconds: ROOM_WAIT_MAX.as_secs(),
            }),
            false => Ok(()),
        }
    }

    /// Creates the next segment.
    fn prepare(&self, number: u32) -> Result<(), EngineError> {
        let made = Segment::create(
            &self.dir,
            number,
            self.high_water.identity(),
            self.options.segment_bytes,
        );
        let mut state = self.cleaning.state.lock();
        state.is_preparing = false;
        self.cleaning.changed.notify_all();
        state.prepared = Some(made?);
        Ok(())
    }

    /// Syncs a full segment, and writes its file of keys.
    pub(super) fn seal(&self, full: Full) -> Result<(), EngineError> {
        let Full {
            segment,
            ended,
            keys,
            stays_as_it_is,
        } = full;
        // A file of keys implies that its segment is on the disk. If any sync failed, the segment may not be.
        self.synced.sync_part(&self.dir, || segment.sync())?;
        self.unsynced.lock().retain(|other| other.number() != segment.number());
        // If these steps fail, the segment uses more space, a loss of it would not be noticed, and it is read as a
        // whole at the next start. It can still be cleaned.
        let cut = if stays_as_it_is {
            Ok(())
        } else {
            segment.cut(ended.length)
        };
        // Lists the segments once, after the last waiting segment.
        let listed = match self.cleaning.has_full() {
            true => Ok(()),
            false => self.list_segments(None),
        };
        let written = keys.write(segment.path(), ended);
        if let Some(used) = self.writer.lock().uses.get_mut(&segment.number()) {
            used.state = SegmentState::Sealed;
        }
        cut.and(listed).and(written)
    }

    /// Cleans segments as long as it is worth it.
    fn clean(&self) -> Result<(), EngineError> {
        let deleted = self.delete_emptied();
        while let Some(victim) = self.victim() {
            self.clean_segment(&victim)?;
        }
        self.cleaning.hurries.store(false, Relaxed);
        deleted
    }

    /// The segment whose cleaning frees the most; `None` if there is too little garbage, or if a writer waits for
    /// another step.
    fn victim(&self) -> Option<Arc<Segment>> {
        {
            let state = self.cleaning.state.lock();
            if state.has_ended || !state.full.is_empty() || state.wanted.is_some() {
                return None;
            }
        }
        let writer = self.writer.lock();
        let amount = Amount::of(&writer, self.options.segment_bytes);
        self.cleaning.set_behind(amount.is_behind());
        let hurries = self.cleaning.hurries.load(Relaxed);
        let number = if amount.wants_the_oldest_moved(hurries) {
            writer.uses.first_key_value().map(|(oldest, _)| *oldest)?
        } else if amount.wants_cleaning(self.options.garbage_percent_max, hurries) {
            best_of(&writer)?
        } else {
            return None;
        };
        let segments = self.segments.read();
        segments.get(&number).cloned()
    }
}

/// The segment with the best cost-benefit ratio.
fn best_of(writer: &Writer) -> Option<u32> {
    let worth = |(age, used): &(Age, &Use)| {
        let share = 1.0 - used.garbage_bytes(age) as f64 / used.bytes as f64;
        (1.0 - share) * f64::from(writer.last - age.number) / (1.0 + share)
    };
    let with_garbage = writer
        .uses_by_age()
        .filter(|(age, used)| used.garbage_bytes(age) * 100 > used.bytes * HURRIED_PERCENT / 2);
    let best = with_garbage.max_by(|one, two| worth(one).total_cmp(&worth(two)));
    best.map(|(age, _)| age.number)
}

#[cfg(test)]
mod tests {
    use super::super::segment::{Ended, SEGMENT_HEAD_BYTES};
    use super::super::{LogEngine, LogOptions, keys::Keys};
    use super::*;

    #[test]
    fn no_file_of_keys_is_written_after_a_failed_sync() {
        let dir = tempfile::tempdir().unwrap();
        let engine = LogEngine::open(dir.path(), LogOptions::default()).unwrap();
        let full = |number| Full {
            segment: Arc::new(Segment::create(dir.path(), number, 1, 1 << 10).unwrap()),
            ended: Ended {
                length: SEGMENT_HEAD_BYTES,
                batches: 0,
            },
            keys: Keys::of(number),
            stays_as_it_is: false,
        };
        let (before, after) = (full(100), full(101));
        let has_keys = |number| dir.path().join(format!("{number:010}.keys")).exists();
        engine.shared.seal(before).unwrap();
        assert!(has_keys(100));
        let failed = std::io::Error::from_raw_os_error(5);
        engine.shared.synced.failed(dir.path(), &failed);
        let sealed = engine.shared.seal(after);
        assert!(matches!(sealed, Err(EngineError::SyncFailed { .. })), "{sealed:?}");
        assert!(!has_keys(101));
    }

    #[test]
    fn writers_wait_for_garbage_and_only_for_very_many_deletions() {
        let mut amount = Amount {
            bytes: 1000,
            garbage_bytes: 800,
            deletion_bytes: 150,
            spared_bytes: 100,
        };
        assert!(amount.is_behind() && amount.wants_cleaning(50, false));
        // Also if a larger share of garbage is allowed.
        assert!(amount.wants_cleaning(90, false));
        assert!(!amount.wants_the_oldest_moved(true));
        (amount.garbage_bytes, amount.deletion_bytes) = (200, 150);
        assert!(!amount.wants_the_oldest_moved(false) && amount.wants_the_oldest_moved(true));
        (amount.garbage_bytes, amount.deletion_bytes) = (50, 700);
        assert!(!amount.is_behind() && !amount.wants_cleaning(50, false));
        assert!(amount.wants_the_oldest_moved(false));
        (amount.garbage_bytes, amount.deletion_bytes) = (50, 900);
        assert!(amount.is_behind() && !amount.wants_cleaning(50, false));
        assert!(amount.wants_the_oldest_moved(false));
    }

    proptest::proptest! {
        #[test]
        fn writers_only_wait_for_work_that_gets_done(
            parts: [u32; 3],
            spared_bytes: u32,
            garbage_percent_max in 0..100_u64,
            hurries: bool,
        ) {
            let [garbage_bytes, deletion_bytes, others] = parts.map(u64::from);
            let amount = Amount {
                bytes: garbage_bytes + deletion_bytes + others,
                garbage_bytes,
                deletion_bytes,
                spared_bytes: u64::from(spared_bytes) >> 4,
            };
            let is_done = amount.wants_the_oldest_moved(hurries) || amount.wants_cleaning(garbage_percent_max, hurries);
            proptest::prop_assert!(!amount.is_behind() || is_done);
        }
    }
}
