//! The thread behind the writer: it puts what was written on the disk, now and then, and gives back the space of what
//! was overwritten, by [moving](super::moving) what is left of a segment to the end of the log.
//!
//! Which segment is worth it: by cost and benefit, as in Rosenblum and Ousterhout, The Design and Implementation of a
//! Log-Structured File System (1992), section 3.5: `(1 - u) * age / (1 + u)`, where `u` is the share that is used.
//!
//! A deletion is needed until no older segment is left, which may be full of records that are never overwritten. So when there are too
//! many deletions, the oldest segment is moved, whatever it has: all deletions in it are past by then.

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

/// How many segments of garbage are left alone, whatever their share is.
const SEGMENTS_SPARED: u64 = 4;
/// How many batches there are between two looks at how much garbage there is.
const BATCHES_BETWEEN: u32 = 64;
/// How large a share deletions may be before the oldest segment is moved for them, if they are more than is spared, too.
const DELETIONS_PERCENT_MAX: u64 = 25;
/// When there is no space left, all is cleaned of which this share is garbage.
const HURRIED_PERCENT: u64 = 10;
/// Writers wait when there is so many times as much in the log as is used, and more than is spared; and when there are so
/// many times as many deletions as all else that is used.
const BEHIND_TIMES: u64 = 4;
/// How long a write waits for that.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(60);
/// How often what was written is put on the disk, if no sync is asked for before. To hand over what was written in a whole
/// second is one system call that keeps a processor for ten milliseconds and more.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// How soon it tries again when the disk refused.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// It gives way to what answers clients, but not wholly.
const NICE: i32 = 5;

/// What the writer tells the thread.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    state: Mutex<State>,
    told: Condvar,
    /// Writers are to wait.
    is_behind: AtomicBool,
    hurries: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    full: VecDeque<Full>,
    /// The number of a segment that is to be made.
    wanted: Option<u32>,
    is_preparing: bool,
    prepared: Option<Segment>,
    wants_cleaning: bool,
    has_ended: bool,
}

impl Cleaning {
    /// A segment is full.
    pub(super) fn seal(&self, full: Full) {
        self.state.lock().full.push_back(full);
        self.told.notify_all();
    }

    /// Whether there are segments that are full, and not sealed yet.
    fn has_full(&self) -> bool {
        !self.state.lock().full.is_empty()
    }

    /// A segment that is full, and not sealed yet.
    pub(super) fn take_full(&self) -> Option<Full> {
        self.state.lock().full.pop_front()
    }

    /// A segment will be needed soon: making one waits for the disk.
    pub(super) fn prepare(&self, number: u32) {
        self.state.lock().wanted = Some(number);
        self.told.notify_all();
    }

    /// The segment that was made, if it has this number. If it is being made, this waits for it.
    pub(super) fn take_prepared(&self, number: u32) -> Option<Segment> {
        let mut state = self.state.lock();
        state.wanted = None;
        self.told.wait_while(&mut state, |state| state.is_preparing);
        state.prepared.take_if(|segment| segment.number() == number)
    }

    /// Whether writers are to wait.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed)
    }

    fn set_behind(&self, is_behind: bool) {
        if is_behind != self.is_behind.swap(is_behind, Relaxed) {
            self.state.lock().wants_cleaning |= is_behind;
            self.told.notify_all();
        }
    }

    /// There is no space left: whatever can be given back is wanted.
    pub(super) fn hurry(&self) {
        if !self.hurries.swap(true, Relaxed) {
            self.want();
        }
    }

    fn want(&self) {
        self.state.lock().wants_cleaning = true;
        self.told.notify_all();
    }

    /// Something was written, or dropped.
    pub(super) fn wrote(&self, writer: &mut Writer, segment_bytes: u64) {
        // Few batches may leave much garbage, and nothing more may be written before it is gone.
        if writer.garbage_made_bytes >= segment_bytes {
            writer.garbage_made_bytes = 0;
            self.want();
        }
        // The segments are few, but not to be counted for each batch.
        let is_turn = |batches: u32| batches.is_multiple_of(BATCHES_BETWEEN);
        if writer.active.as_ref().is_some_and(|active| is_turn(active.batches)) {
            self.set_behind(Amount::of(writer, segment_bytes).is_behind());
        }
    }

    fn end(&self) {
        self.state.lock().has_ended = true;
        self.told.notify_all();
    }
}

/// How much there is in the log.
#[derive(Debug, Clone, Copy)]
struct Amount {
    bytes: u64,
    garbage_bytes: u64,
    /// Of deletions that are kept, and need not be when older segments are moved: none, if the oldest stays.
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
            // Garbage comes first where it is waited for: what is oldest may all have to be moved before a deletion goes.
            _ if self.has_garbage_behind() => false,
            true => self.deletion_bytes * 100 > self.bytes * HURRIED_PERCENT,
            false => {
                let is_much = self.deletion_bytes * 100 > self.bytes * DELETIONS_PERCENT_MAX;
                self.deletion_bytes > self.spared_bytes && is_much || self.has_deletions_behind()
            }
        }
    }
}

/// The thread. Dropping this ends it, and waits for it.
pub(super) struct Cleaner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Cleaner {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, EngineError> {
        let theirs = Arc::downgrade(shared);
        let cleaning = Arc::clone(&shared.cleaning);
        let thread = thread::Builder::new().name("engine-clean".into()).spawn(move || {
            // Where the system refuses, it is as usual.
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
            // It has said already why it panicked, if it did.
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
            // It may have ended by a panic; and what is to be cleaned still is.
            state.is_preparing = false;
            state.wants_cleaning = true;
            cleaning.told.notify_all();
            cleaning
                .told
                .wait_while_for(&mut state, |state| !state.has_ended, TRY_AGAIN);
        }
    }
}

fn next_step(cleaning: &Cleaning) -> Step {
    let idle = |state: &mut State| {
        !state.has_ended && !state.wants_cleaning && state.full.is_empty() && state.wanted.is_none()
    };
    let mut state = cleaning.state.lock();
    let waited = cleaning.told.wait_while_for(&mut state, idle, SYNC_EVERY);
    // What is not sealed is read when the engine is opened again.
    if state.has_ended {
        return Step::End;
    }
    if waited.timed_out() {
        return Step::Sync;
    }
    if let Some(number) = state.wanted.take() {
        state.is_preparing = true;
        // It may have been interrupted in that.
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
        cleaning.told.wait_while_for(&mut state, is_behind, ROOM_WAIT_MAX);
        drop(state);
        match cleaning.is_behind() {
            true => Err(EngineError::Behind {
                dir: self.dir.clone(),
                waited_seconds: ROOM_WAIT_MAX.as_secs(),
            }),
            false => Ok(()),
        }
    }

    /// Makes the segment that is needed next.
    fn prepare(&self, number: u32) -> Result<(), EngineError> {
        let made = Segment::create(
            &self.dir,
            number,
            self.high_water.identity(),
            self.options.segment_bytes,
        );
        let mut state = self.cleaning.state.lock();
        state.is_preparing = false;
        self.cleaning.told.notify_all();
        state.prepared = Some(made?);
        Ok(())
    }

    /// Puts a full segment on the disk, and its keys beside it.
    pub(super) fn seal(&self, full: Full) -> Result<(), EngineError> {
        let Full {
            segment,
            ended,
            keys,
            stays_as_it_is,
        } = full;
        // The keys stand for a segment that is on the disk: where any sync failed, it may not be.
        self.synced.sync_part(&self.dir, || segment.sync())?;
        self.unsynced.lock().retain(|other| other.number() != segment.number());
        // Without these it takes more space, is not missed, and is read itself; it can be cleaned all the same.
        let cut = if stays_as_it_is {
            Ok(())
        } else {
            segment.cut(ended.length)
        };
        // Once for all that wait.
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

    /// Cleans segments as long as that is worth it.
    fn clean(&self) -> Result<(), EngineError> {
        while let Some(victim) = self.victim() {
            self.clean_segment(&victim)?;
        }
        self.cleaning.hurries.store(false, Relaxed);
        Ok(())
    }

    /// The segment whose cleaning brings most; `None` if there is too little garbage, or a writer waits.
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

/// The segment whose cleaning brings most.
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
    fn a_segment_gets_no_keys_beside_it_after_a_sync_that_failed() {
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
        // Whatever share is allowed to be garbage.
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
        fn what_writers_wait_for_is_done(
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
