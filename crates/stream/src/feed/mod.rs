//! An overlay and the topic that feeds it: which topic partition is read next, and how far each was read.
//!
//! A *lane* is a topic partition as one cohort of the overlay reads it. At most one thread works on a lane at a time.

mod settling;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_model::PartitionSet;
use parking_lot::Mutex;

use self::settling::Settling;
use crate::error::StreamError;
use crate::moment::Moment;
use crate::overlay::{Overlay, OverlayOptions};
use crate::progress::LostRecords;
use crate::source::Source;

/// How long a partition without new records is left alone; it doubles up to the longest.
pub(crate) const IDLE_MIN: Duration = Duration::from_millis(1);
pub(crate) const IDLE_MAX: Duration = Duration::from_millis(50);
/// The same if the source rings an alarm.
const WATCHED_IDLE: Duration = Duration::from_secs(1);
/// How long a partition is left alone after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How often a feed looks for new partitions of its topic.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a paused feed asks where the partitions of its topic end.
const LOOK_PAUSED_EVERY: Duration = Duration::from_secs(5);
/// How long there is an error before it counts as one that lasts.
const LASTS: Duration = Duration::from_secs(3);
/// How often an error that lasts is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Once a later cohort is so many records behind the first one, that one waits for it.
const NEAR_RECORDS: u64 = 10_000;

/// How an overlay is fed.
pub struct FeedOptions {
    /// Where the stream begins, in milliseconds since 1970: what was logged before is not read.
    pub start_ms: u64,
    /// How old the newest record that was applied may be when the overlay begins to answer, in milliseconds.
    pub lag_ms_max: u64,
    /// Whether it reads nothing for now.
    pub is_paused: bool,
    /// Called, on a thread of the ingest, when more partitions answer.
    pub on_ready: Box<dyn Fn() + Send + Sync>,
    /// Asked, on a thread of the ingest, where other nodes have begun with a partition of the topic.
    pub begun_elsewhere: BegunElsewhere,
}

impl Default for FeedOptions {
    /// From the beginning of the topic, answering once all of it was read, on a node without others.
    fn default() -> Self {
        Self {
            start_ms: 0,
            lag_ms_max: 0,
            is_paused: false,
            on_ready: Box::new(|| ()),
            begun_elsewhere: Box::new(|_| Ok(None)),
        }
    }
}

/// Returns the first offset of a partition of the topic that other nodes have read, or were to read, for the same version; `None`
/// if none knows.
pub type BegunElsewhere = Box<dyn Fn(u32) -> Result<Option<u64>, StreamError> + Send + Sync>;

/// An overlay and the topic that feeds it.
pub struct Feed {
    /// Distinguishes it from all others of the process.
    number: u64,
    overlay: Arc<Overlay>,
    source: Arc<dyn Source>,
    start_ms: u64,
    lag_ms_max: AtomicU64,
    is_paused: AtomicBool,
    on_ready: Box<dyn Fn() + Send + Sync>,
    begun_elsewhere: BegunElsewhere,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<Lane, LaneState>,
    /// The partitions of the topic, and when they were counted.
    looked: Option<Instant>,
    running: usize,
    last_step: Option<Instant>,
    /// Whether the last look has left something to do.
    has_more: bool,
    /// Whether the last turn was a look.
    has_looked: bool,
    /// Why the partitions of the topic could not be counted, or updates not be replaced by what they make, if so.
    error: Option<String>,
    /// Since when there has been an error without a break.
    failing: Option<Instant>,
    /// When an error was logged last.
    told: Option<Instant>,
    settling: Settling,
}

/// What a step has done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step {
    /// How many records were applied.
    applied: usize,
    /// About how many bytes were read.
    pub(crate) bytes: u64,
}

/// A cohort and a topic partition.
pub(crate) type Lane = (u32, u32);

#[derive(Debug, Clone, Default)]
struct LaneState {
    is_running: bool,
    /// Whether the source has rung the alarm since the last step began.
    is_woken: bool,
    /// Whether the source rings it for all records since the last step.
    is_watched: bool,
    due: Option<Instant>,
    idle: Duration,
    /// The offset to read next, once it has begun.
    next: Option<u64>,
    /// The end of the partition when it was last looked at.
    end: u64,
    /// When the last record that was applied since the process began was logged.
    logged_ms: Option<u64>,
    /// All records that were logged before this time were read.
    read_ms: Option<u64>,
    /// Why a step failed, unless a later one has read records, or was at the end: a source that fails again and again may give
    /// nothing in between.
    error: Option<String>,
}

/// A topic partition as an overlay has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceStatus {
    /// The topic partition.
    pub partition: u32,
    /// The offset to read next, if it has been read at all since the process began: reads see the effects of all
    /// records before it.
    pub next: Option<u64>,
    /// How many records are yet to be read, if it has been read at all since the process began.
    pub lag_records: Option<u64>,
    /// The age of the last record that was applied, in milliseconds; 0 if all were read, or none was
    /// applied since the process began.
    pub lag_ms: u64,
}

/// How far an overlay has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedStatus {
    /// Each topic partition; the furthest behind, if partitions of the store differ.
    pub partitions: Vec<SourceStatus>,
    /// Up to which time no event may come any more, in milliseconds since 1970; 0 if none was read since the process began.
    pub settled_ms: u64,
    /// The reason that keeps it from reading, if there is one.
    pub error: Option<String>,
    /// The first offset of each topic partition that was read, or was to be read.
    pub begun: BTreeMap<u32, u64>,
    /// Which records were gone before they were read.
    pub lost: Vec<LostRecords>,
}

impl Feed {
    /// Feeds an overlay from a source.
    pub fn new(overlay: Arc<Overlay>, source: Arc<dyn Source>, options: FeedOptions) -> Self {
        static FEEDS: AtomicU64 = AtomicU64::new(1);
        Self {
            number: FEEDS.fetch_add(1, Relaxed),
            overlay,
            source,
            start_ms: options.start_ms,
            lag_ms_max: AtomicU64::new(options.lag_ms_max),
            is_paused: AtomicBool::new(options.is_paused),
            on_ready: options.on_ready,
            begun_elsewhere: options.begun_elsewhere,
            state: Mutex::default(),
        }
    }

    /// The overlay.
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// Sets the partitions that the node holds. Records of others are deleted from then on; the stream is read from the
    /// beginning for new ones.
    ///
    /// # Errors
    /// An error of the engine; it has to be called again.
    pub fn set_held(&self, held: &PartitionSet) -> Result<(), StreamError> {
        if self.overlay.set_held(held)? {
            self.state.lock().looked = None;
        }
        // No thread works for it otherwise.
        while self.is_paused() && self.overlay.delete_given_up()? {}
        Ok(())
    }

    /// Whether it is one of an overlay with these options, from this time on.
    pub fn is_for(&self, options: &OverlayOptions, start_ms: u64) -> bool {
        self.overlay.options() == options && self.start_ms == start_ms
    }

    /// Sets how old the newest record that was applied may be when the overlay begins to answer, in milliseconds; and
    /// pauses it, or lets it go on.
    pub fn set(&self, lag_ms_max: u64, is_paused: bool) {
        self.lag_ms_max.store(lag_ms_max, Relaxed);
        if self.is_paused.swap(is_paused, Relaxed) != is_paused {
            self.state.lock().looked = None;
        }
    }

    /// How far it has come.
    pub fn status(&self) -> FeedStatus {
        let now = Moment::now();
        let state = self.state.lock();
        let mut partitions = BTreeMap::<u32, SourceStatus>::new();
        for (&(_, partition), lane) in &state.lanes {
            let lag_records = lane.next.map(|_| lane.lag_records());
            let known = partitions.entry(partition).or_insert(SourceStatus {
                partition,
                next: Some(u64::MAX),
                lag_records: Some(0),
                lag_ms: 0,
            });
            known.next = known.next.zip(lane.next).map(|(known, new)| known.min(new));
            known.lag_records = known.lag_records.zip(lag_records).map(|(known, new)| known.max(new));
            known.lag_ms = known.lag_ms.max(lane.lag_ms(now).unwrap_or(0));
        }
        FeedStatus {
            partitions: partitions.into_values().collect(),
            settled_ms: self.settled_ms(&state),
            error: state.error().cloned(),
            begun: self.overlay.begun(),
            lost: self.overlay.lost(),
        }
    }

    /// The reason that has kept it from reading for some seconds, if there is one.
    pub fn lasting_error(&self) -> Option<String> {
        let state = self.state.lock();
        let lasts = state.failing.is_some_and(|since| since.elapsed() >= LASTS);
        state.error().filter(|_| lasts).cloned()
    }

    /// Whether it is paused.
    fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    /// How many threads work for it, and when the last step began: the smaller, the sooner it is its turn.
    pub(crate) fn turn(&self) -> (usize, Option<Instant>) {
        let state = self.state.lock();
        (state.running, state.last_step)
    }

    /// Takes note of how a look at its topic ended.
    pub(crate) fn looked(&self, result: &Result<(), StreamError>, now: Moment) {
        let mut state = self.state.lock();
        state.error = result.as_ref().err().map(ToString::to_string);
        self.note_error(&mut state, now.at);
    }

    /// Takes note of whether there is an error, and logs it, but not again and again.
    fn note_error(&self, state: &mut State, now: Instant) {
        let Some(error) = state.error() else {
            state.failing = None;
            return;
        };
        if state.told.is_none_or(|told| now - told >= LOG_EVERY) {
            let OverlayOptions { store, version, .. } = self.overlay.options();
            tracing::warn!(%store, %version, error, "events cannot be read or applied: trying again");
            state.told = Some(now);
        }
        state.failing.get_or_insert(now);
    }

    /// Takes note of new cohorts and topic partitions, and goes on with what is done little by little.
    pub(crate) fn look(&self, now: Moment) -> Result<(), StreamError> {
        if self.is_paused() {
            return self.look_at_ends();
        }
        let has_more = self.overlay.delete_given_up()?;
        let looked = self.look_at_topic(now);
        // Not before: another thread would look, too.
        self.state.lock().has_more |= has_more;
        looked
    }

    fn look_at_topic(&self, now: Moment) -> Result<(), StreamError> {
        let partitions = self.source.partitions()?;
        if let Some(identity) = self.source.identity()
            && self.overlay.note_topic(identity)?
        {
            let store = &self.overlay.options().store;
            tracing::error!(%store, "the topic was deleted and made again: it is read from its beginning, and events of the former one may be lost: push a new version");
            // They go back: cohorts must not be compared with where they were.
            for lane in self.state.lock().lanes.values_mut() {
                (lane.next, lane.logged_ms, lane.read_ms) = (None, None, None);
            }
        }
        let lanes = self.overlay.lanes(partitions);
        if let Err(StreamError::Partitions { .. }) = lanes {
            // What has not been read yet may be anywhere.
            self.state.lock().lanes.clear();
        }
        let lanes = lanes?;
        let mut state = self.state.lock();
        state.lanes.retain(|lane, _| lanes.contains(lane));
        lanes.iter().for_each(|&lane| _ = state.lanes.entry(lane).or_default());
        drop(state);
        self.fold(now)
    }

    /// Takes note of where the partitions of the topic end, while none is read.
    fn look_at_ends(&self) -> Result<(), StreamError> {
        let partitions = self.source.partitions()?;
        let lanes = self.overlay.lanes(partitions)?;
        let read: BTreeMap<u32, _> = self.overlay.cohorts()?.into_iter().collect();
        let ends = (0..partitions).map(|partition| self.source.offset_at(partition, u64::MAX));
        let ends = ends.collect::<Result<Vec<u64>, _>>()?;
        let mut state = self.state.lock();
        for (cohort, partition) in lanes {
            let lane = state.lanes.entry((cohort, partition)).or_default();
            let known = read.get(&cohort).and_then(|cohort| cohort.offsets.get(&partition));
            lane.next = lane.next.or(known.copied());
            lane.end = ends[partition as usize];
            lane.error = None;
        }
        Ok(())
    }

    /// Whether it is time to look for new cohorts and topic partitions; then the caller does.
    pub(crate) fn takes_look(&self, now: Instant) -> bool {
        let (is_paused, every) = (self.is_paused(), self.look_every());
        let mut state = self.state.lock();
        // What is left to do takes turns with events, and with other feeds.
        let may_go_on = || !state.has_looked || state.lanes.values().all(|lane| !lane.is_due(now));
        let is_due =
            state.looked.is_none_or(|looked| now - looked >= every) || !is_paused && state.has_more && may_go_on();
        if is_due {
            (state.looked, state.last_step) = (Some(now), Some(now));
            (state.has_more, state.has_looked) = (false, true);
        }
        is_due
    }

    fn look_every(&self) -> Duration {
        match self.is_paused() {
            true => LOOK_PAUSED_EVERY,
            false => LOOK_EVERY,
        }
    }

    /// Whether it is a reader of this feed.
    pub(crate) fn is_reader(&self, reader: u64) -> bool {
        reader >> 32 == self.number
    }

    /// Takes note that there are new records for a reader of this feed.
    pub(crate) fn wake(&self, reader: u64, partition: u32, now: Instant) {
        let mut state = self.state.lock();
        if let Some(lane) = state.lanes.get_mut(&(reader as u32, partition)) {
            lane.is_woken = true;
            lane.due = lane.due.min(Some(now));
        }
    }

    /// When a lane or a look is due next.
    pub(crate) fn next_due(&self, now: Instant) -> Instant {
        let (is_paused, every) = (self.is_paused(), self.look_every());
        let state = self.state.lock();
        let idle = state.lanes.values().filter(|lane| !is_paused && !lane.is_running);
        let due = idle.map(|lane| lane.due.unwrap_or(now)).min();
        let look = state.looked.filter(|_| is_paused || !state.has_more);
        let look = look.map_or(now, |looked| looked + every);
        due.map_or(look, |due| due.min(look))
    }

    /// The lane for the next step, which is then marked as running.
    pub(crate) fn take(&self, now: Instant) -> Option<Lane> {
        if self.is_paused() {
            return None;
        }
        let mut state = self.state.lock();
        let first = state.lanes.keys().next()?.0;
        let waits = first_waits(&state.lanes, first);
        let lanes = state
            .lanes
            .iter_mut()
            .filter(|((cohort, _), lane)| lane.is_due(now) && !(waits && *cohort == first));
        // The one that has waited longest: one with many records must not keep others from theirs.
        let (&lane, found) = lanes.min_by_key(|(_, lane)| lane.due)?;
        found.is_running = true;
        found.is_woken = false;
        state.running += 1;
        (state.last_step, state.has_looked) = (Some(now), false);
        Some(lane)
    }

    /// Takes note of how a step ended.
    pub(crate) fn done(&self, lane: Lane, result: Result<Step, StreamError>, now: Moment) {
        let cohort = lane.0;
        let mut state = self.state.lock();
        state.running -= 1;
        if let Some(lane) = state.lanes.get_mut(&lane) {
            match &result {
                Err(error) => lane.error = Some(error.to_string()),
                Ok(step) if step.applied > 0 || lane.next == Some(lane.end) => lane.error = None,
                Ok(_) => {}
            }
            lane.is_running = false;
            lane.idle = match &result {
                Ok(_) if lane.is_woken => Duration::ZERO,
                Ok(_) if lane.is_watched && lane.next == Some(lane.end) => WATCHED_IDLE,
                Ok(Step { applied: 0, .. }) => (lane.idle * 2).clamp(IDLE_MIN, IDLE_MAX),
                Ok(_) => Duration::ZERO,
                Err(_) => AFTER_ERROR,
            };
            lane.due = Some(now.at + lane.idle);
        }
        self.note_error(&mut state, now.at);
        let is_within = |lane: &LaneState| {
            lane.next.is_some()
                && lane.error.is_none()
                && lane
                    .lag_ms(now)
                    .is_some_and(|lag_ms| lag_ms <= self.lag_ms_max.load(Relaxed))
        };
        let mut of_cohort = state.lanes.range((cohort, 0)..=(cohort, u32::MAX)).peekable();
        if of_cohort.peek().is_some() && of_cohort.all(|(_, lane)| is_within(lane)) {
            drop(state);
            // It is noted again after the next step.
            match self.overlay.set_ready(cohort) {
                Ok(true) => (self.on_ready)(),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(store = %self.overlay.options().store, %error, "cannot note that a stream was read");
                }
            }
        }
    }
}

/// Whether the first cohort waits, so that another one can catch up with it.
fn first_waits(lanes: &BTreeMap<Lane, LaneState>, first: u32) -> bool {
    let mut behind = BTreeMap::<u32, Option<u64>>::new();
    for (&(cohort, partition), lane) in lanes.range((first + 1, 0)..) {
        let Some(ahead) = lanes.get(&(first, partition)) else {
            // The first one does not read it.
            continue;
        };
        // One that cannot be read is not waited for, nor one that is ahead: that one waits.
        let gap = ahead.next.zip(lane.next.filter(|_| lane.error.is_none()));
        let gap = gap.and_then(|(ahead, next)| ahead.checked_sub(next));
        // If it has read all there is, the first one was beyond: of a topic that has lost records since then.
        let gap = gap.filter(|&gap| gap == 0 || lane.lag_records() > 0);
        let sum = behind.entry(cohort).or_insert(Some(0));
        *sum = sum.zip(gap).map(|(sum, gap)| sum + gap);
    }
    // One that has come as far, but reads more than the first one, need not be waited for.
    behind.values().flatten().any(|gap| (1..=NEAR_RECORDS).contains(gap))
}

impl State {
    fn error(&self) -> Option<&String> {
        let mut errors = self.lanes.values().filter_map(|lane| lane.error.as_ref());
        self.error.as_ref().or_else(|| errors.next())
    }
}

impl LaneState {
    fn is_due(&self, now: Instant) -> bool {
        !self.is_running && self.due.is_none_or(|due| due <= now)
    }

    fn lag_records(&self) -> u64 {
        self.next.map_or(0, |next| self.end.saturating_sub(next))
    }

    /// `None` if there are more records, and none was applied since the process began.
    fn lag_ms(&self, now: Moment) -> Option<u64> {
        match self.lag_records() {
            0 => Some(0),
            _ => Some(now.unix_ms.saturating_sub(self.logged_ms?)),
        }
    }
}
