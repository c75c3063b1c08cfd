//! One step: records of a topic partition are read, and applied to the overlay.
//!
//! A group begins at the offset where the version's events end, and continues at the offset that the overlay has
//! recorded. Records that the topic has deleted are skipped and counted as lost.

use std::sync::Arc;
use std::time::Instant;

use super::{CursorId, Feed, Step};
use crate::alarm::Alarm;
use crate::clock::ClockReading;
use crate::error::StreamError;
use crate::overlay::Overlay;
use crate::progress::LostRecords;
use crate::topics::{Terms, topic_partition};

/// How much one step reads, in bytes.
const STEP_BYTES: usize = 128 << 10;
/// How many times one step looks for schemas that its records name.
const FOUND_MAX: usize = 16;
/// How far the times of records may be ahead of this node's clock, in milliseconds: later times do not count for the
/// watermark and the lag.
const AHEAD_MS_MAX: u64 = 60_000;

impl Feed {
    /// The newest log time of all records of a topic that were applied since the process began: a partition that is read to its end is
    /// as far. Of a copy it is not known: a partition stands still while its mirror is away, and then gets earlier records.
    fn newest_ms(&self, topic: u32) -> Option<u64> {
        if topic > 0 {
            return None;
        }
        let state = self.state.lock();
        let of_topic = state
            .cursors
            .iter()
            .filter(|((_, partition), _)| topic_partition(*partition).0 == topic);
        of_topic.filter_map(|(_, cursor)| cursor.logged_ms).max()
    }

    /// Begins a topic partition for a group. Returns the offset to begin at.
    fn begin(&self, group: u32, partition: u32) -> Result<u64, StreamError> {
        let (source, own) = self.source_of(partition);
        let found = source.offset_at(own, self.start_ms)?;
        let first = source.first(own)?;
        // If records were deleted, some may have been there when the version was new, whatever their times: clocks of
        // producers go back. Then the next read reports them as lost.
        let begun = match self.overlay.begun().get(&partition) {
            _ if first == 0 => None,
            Some(&begun) => Some(begun),
            None => (self.begun_elsewhere)(partition)?,
        };
        let begin = begun.map_or(found, |begun| begun.min(found));
        self.overlay.begin(group, partition, begin)?;
        Ok(begin)
    }

    /// Reads and applies records of a cursor.
    pub(crate) fn step(
        &self,
        (group, partition): CursorId,
        alarm: &Arc<Alarm>,
        now: ClockReading,
    ) -> Result<Step, StreamError> {
        let not_ahead = |logged_ms: u64| logged_ms.min(now.unix_ms);
        let offsets = |overlay: &Overlay| {
            let found = overlay.groups()?.into_iter().find(|(number, _)| *number == group);
            Ok::<_, StreamError>(found.map(|(_, group)| group.offsets.get(&partition).copied()))
        };
        let Some(known) = offsets(&self.overlay)? else {
            // The group has joined another one.
            self.state.lock().looked = None;
            return Ok(Step::default());
        };
        let from = match known {
            Some(from) => from,
            None => self.begin(group, partition)?,
        };
        let reader = self.number << 32 | u64::from(group);
        // The newest log time of any partition of the topic, read before this one is asked for its end.
        let (topic, own) = topic_partition(partition);
        let (newest_ms, source) = (self.newest_ms(topic).map(not_ahead), &self.sources[topic as usize]);
        let read = match source.read(reader, own, from, STEP_BYTES) {
            Err(lost @ StreamError::Lost { first, end, .. }) => {
                tracing::error!(store = %self.overlay.options().store, error = %lost, "events were lost");
                // Its offset may decrease: groups must not be compared with its former position.
                if let Some(cursor) = self.state.lock().cursors.get_mut(&(group, partition)) {
                    cursor.next = None;
                }
                // A topic that ends earlier has lost its last records, or is another one: it assigns the same offsets
                // again.
                let (to, lost_from, lost_to) = match from > end {
                    true => (source.offset_at(own, self.start_ms)?, end, from),
                    false => (first, from, first),
                };
                let records = LostRecords {
                    partition,
                    from: lost_from,
                    to: lost_to,
                };
                self.overlay.pass_over(group, from, to, records)?;
                return Err(lost);
            }
            read => read?,
        };
        let terms = Terms {
            read_at: Instant::now(),
            center: self.center_ranks.get(topic as usize).copied().unwrap_or(0),
            since_ms: if self.center_ranks.is_empty() { 0 } else { self.start_ms },
            ahead_ms_max: self.ahead_ms_max,
        };
        let is_watched = source.watch(reader, own, alarm);
        let apply = |from| self.overlay.apply((group, partition), from, &read, terms);
        let mut outcome = apply(from)?;
        let mut applied = outcome.applied;
        let mut stalled = None;
        for _ in 0..FOUND_MAX {
            let Some(missing) = &outcome.missing else { break };
            stalled = self.overlay.rules().find(missing).err();
            let next = offsets(&self.overlay)?.flatten();
            let (None, Some(next)) = (&stalled, next) else { break };
            outcome = apply(next)?;
            applied += outcome.applied;
        }
        let next = offsets(&self.overlay)?.flatten();
        let mut state = self.state.lock();
        let Some(next) = next else {
            // The group has joined another one meanwhile, or begins anew.
            state.looked = None;
            return Ok(Step::default());
        };
        if let Some(cursor) = state.cursors.get_mut(&(group, partition)) {
            cursor.next = Some(next);
            cursor.end = read.end;
            cursor.is_watched = is_watched;
            let mut logged = read.records.iter().take(applied).map(|record| record.logged_ms);
            // By the time of a clock that is far ahead, everything would seem to be read.
            if let Some(last_ms) = logged.rfind(|&logged_ms| logged_ms <= now.unix_ms.saturating_add(AHEAD_MS_MAX)) {
                cursor.logged_ms = Some(last_ms);
                cursor.read_ms = cursor.read_ms.max(Some(not_ahead(last_ms)));
            }
            if cursor.next == Some(read.end) {
                cursor.read_ms = cursor.read_ms.max(newest_ms);
            }
        }
        match stalled {
            Some(error) => Err(error),
            None => Ok(Step {
                applied,
                bytes: read.bytes(),
            }),
        }
    }
}
