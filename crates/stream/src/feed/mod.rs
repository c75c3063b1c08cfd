//! An overlay and the topics that feed it: which topic partition is read next, and how far each was read.
//!
//! A *cursor* is the read position of one replay group of the overlay in one topic partition. At most
//! one thread works on a cursor at a time.

mod step;
mod watermark;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fondaco_model::{PartitionSet, StreamSettings};
use parking_lot::Mutex;

use self::watermark::FoldState;
use crate::clock::ClockReading;
use crate::error::StreamError;
use crate::overlay::{Overlay, OverlayOptions};
use crate::progress::LostRecords;
use crate::quota::EventQuota;
use crate::source::Source;
use crate::topics::{number_of, topic_partition};

/// How long a partition without new records is left alone; it doubles up to the longest.
pub(crate) const IDLE_MIN: Duration = Duration::from_millis(1);
pub(crate) const IDLE_MAX: Duration = Duration::from_millis(50);
/// The same if the source rings an alarm.
const WATCHED_IDLE: Duration = Duration::from_secs(1);
/// How long a partition is left alone after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How often a feed checks its topic for new partitions.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a paused feed asks where the partitions of its topic end.
const LOOK_PAUSED_EVERY: Duration = Duration::from_secs(5);
/// How long there is an error before it counts as one that lasts.
const LASTS: Duration = Duration::from_secs(3);
/// How often an error that lasts is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The first group waits for a later one that is this number of records behind or fewer.
const NEAR_RECORDS: u64 = 10_000;

/// How an overlay is fed.
pub struct FeedOptions {
    /// Where the stream begins, in milliseconds since 1970: what was logged before is not read.
    pub start_ms: u64,
    /// The rank of the data center of each topic, if they are of several: at equal times the event of the greatest one counts.
    pub center_ranks: Vec<u8>,
    /// How much later than its record an event may be, in milliseconds.
    pub ahead_ms_max: u64,
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
            center_ranks: Vec::new(),
            ahead_ms_max: StreamSettings::CLOCK_AHEAD_MS,
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

/// An overlay and the topics that feed it.
pub struct Feed {
    /// Distinguishes it from all others of the process.
    number: u64,
    overlay: Arc<Overlay>,
    /// The topic that is written in this data center, and copies of those of others.
    sources: Vec<Arc<dyn Source>>,
    center_ranks: Vec<u8>,
    ahead_ms_max: u64,
    start_ms: u64,
    lag_ms_max: AtomicU64,
    is_paused: AtomicBool,
    /// How many records may be read per second once a group answers; 0 without a limit.
    records_per_second: AtomicU64,
    on_ready: Box<dyn Fn() + Send + Sync>,
    begun_elsewhere: BegunElsewhere,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cursors: BTreeMap<CursorId, Cursor>,
    /// The partitions of the topic, and when they were counted.
    looked: Option<Instant>,
    running: usize,
    last_step: Option<Instant>,
    /// Whether the last check of the topic has left something to do.
    has_more: bool,
    /// Whether the last turn was a check of the topic.
    has_looked: bool,
    /// Why the partitions of the topic could not be counted, or updates not be folded; `None` without an error.
    error: Option<String>,
    /// The begin of the present error, if there is one.
    failing: Option<Instant>,
    /// When an error was logged last.
    last_logged: Option<Instant>,
    fold_state: FoldState,
    quota: EventQuota,
    /// The groups that were once within their bound: the quota holds them back, and no others.
    ready: BTreeSet<u32>,
}

/// The work that a step has done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step {
    /// How many records were applied.
    applied: usize,
    /// About how many bytes were read.
    pub(crate) bytes: u64,
}

/// A group and a topic partition.
pub(crate) type CursorId = (u32, u32);

#[derive(Debug, Clone, Default)]
struct Cursor {
    is_running: bool,
    /// Whether the source has rung the alarm since the last step began.
    is_woken: bool,
    /// Whether the source rings it for all records since the last step.
    is_watched: bool,
    due: Option<Instant>,
    idle: Duration,
    /// The offset to read next, once it has begun.
    next: Option<u64>,
    /// The end of the partition when it was last read.
    end: u64,
    /// The log time of the last record that was applied since the process began.
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
    /// The number of the topic.
    pub topic: u32,
    /// The partition of the topic.
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
    /// The watermark: no event up to this time is expected any more. In milliseconds since 1970; 0 if none was read
    /// since the process began.
    pub settled_ms: u64,
    /// Whether the quota of writes keeps it from reading on now.
    pub is_held_back: bool,
    /// The reason that keeps it from reading, if there is one.
    pub error: Option<String>,
    /// The first offset of each topic partition that was read, or was to be read.
    pub begun: BTreeMap<u32, u64>,
    /// The records that were deleted from the topic before they were read.
    pub lost: Vec<LostRecords>,
}

impl Feed {
    /// Feeds an overlay from a topic.
    pub fn new(overlay: Arc<Overlay>, source: Arc<dyn Source>, options: FeedOptions) -> Self {
        Self::of_topics(overlay, vec![source], options)
    }

    /// Feeds an overlay from the topic of this data center, and from copies of those of others.
    pub fn of_topics(overlay: Arc<Overlay>, sources: Vec<Arc<dyn Source>>, options: FeedOptions) -> Self {
        static FEEDS: AtomicU64 = AtomicU64::new(1);
        Self {
            number: FEEDS.fetch_add(1, Relaxed),
            overlay,
            sources,
            center_ranks: options.center_ranks,
            ahead_ms_max: options.ahead_ms_max,
            start_ms: options.start_ms,
            lag_ms_max: AtomicU64::new(options.lag_ms_max),
            is_paused: AtomicBool::new(options.is_paused),
            records_per_second: AtomicU64::new(0),
            on_ready: options.on_ready,
            begun_elsewhere: options.begun_elsewhere,
            state: Mutex::default(),
        }
    }

    /// The overlay.
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// The topics.
    pub(crate) fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
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

    /// Whether its overlay has these options, and its stream begins at this time.
    pub fn is_for(&self, options: &OverlayOptions, start_ms: u64) -> bool {
        self.overlay.options() == options && self.start_ms == start_ms
    }

    /// Sets how old the newest record that was applied may be when the overlay begins to answer, in milliseconds; and
    /// pauses or resumes it.
    pub fn set(&self, lag_ms_max: u64, is_paused: bool) {
        self.lag_ms_max.store(lag_ms_max, Relaxed);
        if self.is_paused.swap(is_paused, Relaxed) != is_paused {
            self.state.lock().looked = None;
        }
    }

    /// Sets how many records it may read per second once it answers, if there is a limit. A version that has yet to catch up reads as
    /// fast as it can.
    pub fn set_quota(&self, records_per_second: Option<u64>) {
        self.records_per_second.store(records_per_second.unwrap_or(0), Relaxed);
    }

    /// When a group that answers may read on, if the quota holds it back now.
    fn opens(&self, state: &State, now: Instant) -> Option<Instant> {
        match self.records_per_second.load(Relaxed) {
            0 => None,
            _ => state.quota.opens(now),
        }
    }

    /// How far it has come.
    pub fn status(&self) -> FeedStatus {
        let now = ClockReading::now();
        let state = self.state.lock();
        let mut partitions = BTreeMap::<u32, SourceStatus>::new();
        for (&(_, partition), cursor) in &state.cursors {
            let lag_records = cursor.next.map(|_| cursor.lag_records());
            let (topic, own) = topic_partition(partition);
            let known = partitions.entry(partition).or_insert(SourceStatus {
                topic,
                partition: own,
                next: Some(u64::MAX),
                lag_records: Some(0),
                lag_ms: 0,
            });
            known.next = known.next.zip(cursor.next).map(|(known, new)| known.min(new));
            known.lag_records = known.lag_records.zip(lag_records).map(|(known, new)| known.max(new));
            known.lag_ms = known.lag_ms.max(cursor.lag_ms(now).unwrap_or(0));
        }
        FeedStatus {
            partitions: partitions.into_values().collect(),
            settled_ms: self.settled_ms(&state),
            is_held_back: self.opens(&state, now.at).is_some()
                && state.cursors.values().any(|cursor| cursor.is_due(now.at)),
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

    /// Records the result of a check of its topic.
    pub(crate) fn looked(&self, result: &Result<(), StreamError>, now: ClockReading) {
        let mut state = self.state.lock();
        state.error = result.as_ref().err().map(ToString::to_string);
        self.note_error(&mut state, now.at);
    }

    /// Records whether there is an error, and logs it at a limited rate.
    fn note_error(&self, state: &mut State, now: Instant) {
        let Some(error) = state.error() else {
            state.failing = None;
            return;
        };
        if state.last_logged.is_none_or(|logged| now - logged >= LOG_EVERY) {
            let OverlayOptions { store, version, .. } = self.overlay.options();
            tracing::warn!(%store, %version, error, "events cannot be read or applied: trying again");
            state.last_logged = Some(now);
        }
        state.failing.get_or_insert(now);
    }

    /// Adds cursors for new groups and topic partitions, and does a batch of the background work: deletion of lost
    /// partitions, and folding of updates.
    pub(crate) fn look(&self, now: ClockReading) -> Result<(), StreamError> {
        if self.is_paused() {
            return self.look_at_ends();
        }
        let has_more = self.overlay.delete_given_up()?;
        let looked = self.look_at_topic(now);
        // Set only afterwards: otherwise another thread would check the topic, too.
        self.state.lock().has_more |= has_more;
        looked
    }

    fn look_at_topic(&self, now: ClockReading) -> Result<(), StreamError> {
        let partitions = self.partitions()?;
        for (topic, source) in (0..).zip(&self.sources) {
            if let Some(identity) = source.identity()
                && self.overlay.note_topic(topic, identity)?
            {
                let store = &self.overlay.options().store;
                tracing::error!(%store, topic, "a topic was deleted and made again: it is read from its beginning, and events of the former one may be lost: push a new version");
                // Offsets begin again at 0: groups must not be compared with their former positions.
                let mut state = self.state.lock();
                let of_topic = state
                    .cursors
                    .iter_mut()
                    .filter(|((_, partition), _)| topic_partition(*partition).0 == topic);
                of_topic.for_each(|(_, cursor)| (cursor.next, cursor.logged_ms, cursor.read_ms) = (None, None, None));
            }
        }
        let cursors = self.overlay.cursors(&partitions);
        if let Err(StreamError::Partitions { .. }) = cursors {
            // Unread records may be in any partition of the topic.
            self.state.lock().cursors.clear();
        }
        let cursors = cursors?;
        let groups = self.overlay.groups()?.into_iter();
        let ready = groups
            .filter(|(_, group)| group.is_ready)
            .map(|(number, _)| number)
            .collect();
        let mut state = self.state.lock();
        state.cursors.retain(|cursor, _| cursors.contains(cursor));
        state.ready = ready;
        cursors
            .iter()
            .for_each(|&cursor| _ = state.cursors.entry(cursor).or_default());
        drop(state);
        self.fold(now)?;
        self.expire(now)
    }

    /// How many partitions each topic has.
    pub(crate) fn partitions(&self) -> Result<Vec<u32>, StreamError> {
        self.sources.iter().map(|source| source.partitions()).collect()
    }

    /// The topic of a partition, and its number there.
    pub(crate) fn source_of(&self, partition: u32) -> (&Arc<dyn Source>, u32) {
        let (topic, own) = topic_partition(partition);
        (&self.sources[topic as usize], own)
    }

    /// Updates the end offsets of the topics' partitions while the feed is paused.
    fn look_at_ends(&self) -> Result<(), StreamError> {
        let cursors = self.overlay.cursors(&self.partitions()?)?;
        let read: BTreeMap<u32, _> = self.overlay.groups()?.into_iter().collect();
        let mut ends = BTreeMap::new();
        for &(_, partition) in &cursors {
            if let Entry::Vacant(end) = ends.entry(partition) {
                let (source, own) = self.source_of(partition);
                end.insert(source.offset_at(own, u64::MAX)?);
            }
        }
        let mut state = self.state.lock();
        for (group, partition) in cursors {
            let cursor = state.cursors.entry((group, partition)).or_default();
            let known = read.get(&group).and_then(|group| group.offsets.get(&partition));
            cursor.next = cursor.next.or(known.copied());
            cursor.end = ends[&partition];
            cursor.error = None;
        }
        Ok(())
    }

    /// Whether it is time to check for new groups and topic partitions. If so, the caller has to do it.
    pub(crate) fn takes_look(&self, now: Instant) -> bool {
        let (is_paused, every) = (self.is_paused(), self.look_every());
        let mut state = self.state.lock();
        // Background work takes turns with events, and with other feeds.
        let may_go_on = || !state.has_looked || state.cursors.values().all(|cursor| !cursor.is_due(now));
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

    /// Marks a reader of this feed as due, since a topic has new records in this partition: the alarm does not say which one.
    pub(crate) fn wake(&self, reader: u64, partition: u32, now: Instant) {
        let mut state = self.state.lock();
        for topic in 0..self.sources.len() as u32 {
            if let Some(cursor) = state.cursors.get_mut(&(reader as u32, number_of(topic, partition))) {
                cursor.is_woken = true;
                cursor.due = cursor.due.min(Some(now));
            }
        }
    }

    /// When the next step of a cursor or check of the topic is due.
    pub(crate) fn next_due(&self, now: Instant) -> Instant {
        let (is_paused, every) = (self.is_paused(), self.look_every());
        let state = self.state.lock();
        let opens = self.opens(&state, now);
        let idle = state
            .cursors
            .iter()
            .filter(|(_, cursor)| !is_paused && !cursor.is_running);
        let due = idle.map(|((group, _), cursor)| {
            let opens = opens.filter(|_| state.ready.contains(group));
            opens.map_or(cursor.due.unwrap_or(now), |opens| {
                cursor.due.map_or(opens, |due| due.max(opens))
            })
        });
        let due = due.min();
        let look = state.looked.filter(|_| is_paused || !state.has_more);
        let look = look.map_or(now, |looked| looked + every);
        due.map_or(look, |due| due.min(look))
    }

    /// The cursor for the next step, which is then marked as running.
    pub(crate) fn take(&self, now: Instant) -> Option<CursorId> {
        if self.is_paused() {
            return None;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let first = state.cursors.keys().next()?.0;
        let waits = first_waits(&state.cursors, first);
        let (is_held_back, ready) = (self.opens(state, now).is_some(), &state.ready);
        let cursors = state.cursors.iter_mut().filter(|((group, _), cursor)| {
            cursor.is_due(now) && !(waits && *group == first) && !(is_held_back && ready.contains(group))
        });
        // The cursor that has waited longest: one with many records must not delay the others.
        let (&cursor, found) = cursors.min_by_key(|(_, cursor)| cursor.due)?;
        found.is_running = true;
        found.is_woken = false;
        state.running += 1;
        (state.last_step, state.has_looked) = (Some(now), false);
        Some(cursor)
    }

    /// Records the result of a step.
    pub(crate) fn done(&self, cursor: CursorId, result: Result<Step, StreamError>, now: ClockReading) {
        let group = cursor.0;
        let mut state = self.state.lock();
        state.running -= 1;
        let per_second = self.records_per_second.load(Relaxed);
        if let Ok(step) = &result
            && per_second > 0
            && state.ready.contains(&group)
        {
            state.quota.count(step.applied, per_second, now.at);
        }
        if let Some(cursor) = state.cursors.get_mut(&cursor) {
            match &result {
                Err(error) => cursor.error = Some(error.to_string()),
                Ok(step) if step.applied > 0 || cursor.next == Some(cursor.end) => cursor.error = None,
                Ok(_) => {}
            }
            cursor.is_running = false;
            cursor.idle = match &result {
                Ok(_) if cursor.is_woken => Duration::ZERO,
                Ok(_) if cursor.is_watched && cursor.next == Some(cursor.end) => WATCHED_IDLE,
                Ok(Step { applied: 0, .. }) => (cursor.idle * 2).clamp(IDLE_MIN, IDLE_MAX),
                Ok(_) => Duration::ZERO,
                Err(_) => AFTER_ERROR,
            };
            cursor.due = Some(now.at + cursor.idle);
        }
        self.note_error(&mut state, now.at);
        let is_within = |cursor: &Cursor| {
            cursor.next.is_some()
                && cursor.error.is_none()
                && cursor
                    .lag_ms(now)
                    .is_some_and(|lag_ms| lag_ms <= self.lag_ms_max.load(Relaxed))
        };
        let mut of_group = state.cursors.range((group, 0)..=(group, u32::MAX)).peekable();
        if of_group.peek().is_some() && of_group.all(|(_, cursor)| is_within(cursor)) {
            drop(state);
            // It is noted again after the next step.
            match self.overlay.set_ready(group) {
                Ok(true) => (self.on_ready)(),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(store = %self.overlay.options().store, %error, "cannot note that a stream was read");
                }
            }
        }
    }
}

/// Whether the first group waits, so that another one can catch up with it.
fn first_waits(cursors: &BTreeMap<CursorId, Cursor>, first: u32) -> bool {
    let mut behind = BTreeMap::<u32, Option<u64>>::new();
    for (&(group, partition), cursor) in cursors.range((first + 1, 0)..) {
        let Some(ahead) = cursors.get(&(first, partition)) else {
            // The first group does not read this topic partition.
            continue;
        };
        // The first group waits neither for a cursor with an error, nor for one that is ahead: that one waits itself.
        let gap = ahead.next.zip(cursor.next.filter(|_| cursor.error.is_none()));
        let gap = gap.and_then(|(ahead, next)| ahead.checked_sub(next));
        // A cursor at the end can only be behind if the topic has lost records since the first one read them.
        let gap = gap.filter(|&gap| gap == 0 || cursor.lag_records() > 0);
        let sum = behind.entry(group).or_insert(Some(0));
        *sum = sum.zip(gap).map(|(sum, gap)| sum + gap);
    }
    // A group with equal offsets that reads more than the first one is not waited for.
    behind.values().flatten().any(|gap| (1..=NEAR_RECORDS).contains(gap))
}

impl State {
    fn error(&self) -> Option<&String> {
        let mut errors = self.cursors.values().filter_map(|cursor| cursor.error.as_ref());
        self.error.as_ref().or_else(|| errors.next())
    }
}

impl Cursor {
    fn is_due(&self, now: Instant) -> bool {
        !self.is_running && self.due.is_none_or(|due| due <= now)
    }

    fn lag_records(&self) -> u64 {
        self.next.map_or(0, |next| self.end.saturating_sub(next))
    }

    /// `None` if there are more records, and none was applied since the process began.
    fn lag_ms(&self, now: ClockReading) -> Option<u64> {
        match self.lag_records() {
            0 => Some(0),
            _ => Some(now.unix_ms.saturating_sub(self.logged_ms?)),
        }
    }
}
