//! The sink for rows of all readers: a good row goes into the sort, a bad row is counted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use fondaco_model::{KEY_BYTES_MAX, KeyType, VALUE_BYTES_MAX};
use parking_lot::Mutex;

use super::declared::{Encoder, ValueForm};
use super::key::{KeyForm, parts_in};
use crate::error::BuildError;
use crate::graph::{Mention, NAME_BYTES_MAX, Side};
use crate::options::{BuildOptions, RecordTimes};
use crate::progress::Progress;
use crate::report::{BadRow, RowPlace, excerpt};
use crate::samples::Samples;
use crate::sort::{Appender, PartitionTally, RowId};

/// How many bad rows are shown.
const BAD_ROW_SAMPLES_MAX: usize = 10;

/// After this many rows a thread adds to the shared counters and checks for cancellation.
const ROWS_PER_COUNT: u64 = 4096;

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// A record.
    Record,
    /// A record whose key and value are encoded already.
    Stored,
    /// A key to delete.
    Deletion,
    /// A vertex of a graph: its name, and its properties as a JSON object.
    Vertex,
    /// An edge of a graph: the names of its ends, and its properties as a JSON object.
    Edge,
}

impl RowKind {
    /// The form of the key columns.
    pub(super) fn key_form(self, options: &BuildOptions) -> KeyForm {
        match (self, &options.declared.key_type) {
            (Self::Vertex | Self::Edge, _) | (Self::Record | Self::Deletion, KeyType::Tuple(_)) => KeyForm::Parts,
            (Self::Record | Self::Deletion | Self::Stored, _) => KeyForm::Joined,
        }
    }
}

/// The bad rows of a build.
///
/// If there are more than allowed, the error names the first ones in the order of the input. So the build then
/// continues with the rows before the last one that the error would name: other threads may not have read them yet.
pub(crate) struct BadRows {
    rows_max: u64,
    files: Vec<PathBuf>,
    found: Mutex<Found>,
    /// [`RowId`] of the last row that matters, as a number, once there are too many bad rows.
    last: AtomicU64,
}

#[derive(Default)]
struct Found {
    count: u64,
    /// The first ones in the order of the input, so that they do not depend on the threads.
    samples: Vec<(RowId, BadRow)>,
}

impl BadRows {
    pub(crate) fn new(rows_max: u64, files: Vec<PathBuf>) -> Self {
        Self {
            rows_max,
            files,
            found: Mutex::default(),
            last: AtomicU64::new(u64::MAX),
        }
    }

    fn add(&self, row: RowId, reason: String, sample: String) -> Result<(), BuildError> {
        let mut found = self.found.lock();
        found.count += 1;
        let bad = BadRow {
            place: RowPlace::of(&self.files, row),
            reason,
            sample,
        };
        let place = found.samples.partition_point(|(other, _)| *other < row);
        found.samples.insert(place, (row, bad));
        found.samples.truncate(self.samples_max());
        if found.count > self.rows_max
            && let Some((last, _)) = found.samples.last()
        {
            self.last.store(last.number(), Ordering::Relaxed);
            if row >= *last {
                return Err(self.too_many(&found));
            }
        }
        Ok(())
    }

    /// How many bad rows an error or a report shows.
    fn samples_max(&self) -> usize {
        BAD_ROW_SAMPLES_MAX.min(usize::try_from(self.rows_max).map_or(usize::MAX, |max| max.saturating_add(1)))
    }

    fn too_many(&self, found: &Found) -> BuildError {
        BuildError::BadRows {
            // How many more were found depends on the threads.
            count: self.rows_max + 1,
            max: self.rows_max,
            samples: found.samples.iter().map(|(_, bad)| bad.clone()).collect(),
        }
    }

    /// Fails if there were too many.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let found = self.found.lock();
        match found.count > self.rows_max {
            true => Err(self.too_many(&found)),
            false => Ok(()),
        }
    }

    /// Whether there are too many bad rows, all before this one.
    fn is_past_last(&self, row: RowId) -> bool {
        row.number() > self.last.load(Ordering::Relaxed)
    }

    /// The number of bad rows, and the first few.
    pub(crate) fn into_found(self) -> (u64, Vec<BadRow>) {
        let found = self.found.into_inner();
        (found.count, found.samples.into_iter().map(|(_, bad)| bad).collect())
    }
}

/// The place that good rows go to.
pub(crate) enum Target<'a> {
    /// A sort.
    Sort(Appender<'a>),
    /// A stream, in the order of the input.
    Stream(&'a mut dyn Stream),
}

/// A stream of rows with their keys and values.
pub(crate) trait Stream {
    /// Adds a row; without a value it deletes its key. Returns the hash of the key, which has 1 to 65536 bytes.
    fn add(&mut self, row: RowId, key: &[u8], value: Option<&[u8]>) -> Result<u64, BuildError>;
}

impl Target<'_> {
    #[inline]
    fn append(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<u64, BuildError> {
        match self {
            Self::Sort(appender) => appender.append(row, key, value),
            Self::Stream(stream) => stream.add(row, key, Some(value)),
        }
    }
}

/// The result of a thread's sink of rows.
pub(crate) struct Closed {
    pub(crate) tallies: Vec<PartitionTally>,
    pub(crate) samples: Samples,
    pub(crate) schema_ids: BTreeSet<u16>,
}

/// One thread's sink of rows.
pub(crate) struct RowSink<'a> {
    target: Target<'a>,
    samples: Samples,
    bad_rows: &'a BadRows,
    progress: &'a Progress,
    kind: RowKind,
    /// Unless keys and values are stored as they are read.
    encoder: Option<Encoder<'a>>,
    /// The schemas of the values that were encoded already.
    schema_ids: BTreeSet<u16>,
    times: Option<RecordTimes>,
    /// The number of the first file in the build: readers count from 0.
    first_file: u32,
    /// Where a mention of a vertex is written to.
    mention: Vec<u8>,
    /// Rows that are not yet in the shared counter.
    rows_uncounted: u64,
}

impl<'a> RowSink<'a> {
    pub(crate) fn new(
        target: Target<'a>,
        samples: Samples,
        bad_rows: &'a BadRows,
        progress: &'a Progress,
        (options, kind): (&'a BuildOptions, RowKind),
        first_file: u32,
    ) -> Self {
        let is_declared = matches!(kind, RowKind::Record | RowKind::Stored | RowKind::Deletion);
        let encoder =
            (is_declared && !options.declared.is_plain()).then(|| Encoder::new(&options.declared, &options.key));
        Self {
            target,
            samples,
            bad_rows,
            progress,
            kind,
            encoder,
            schema_ids: BTreeSet::new(),
            times: options.times,
            first_file,
            mention: Vec::new(),
            rows_uncounted: 0,
        }
    }

    pub(crate) fn progress(&self) -> &'a Progress {
        self.progress
    }

    /// Fails if a row, and so all after it, come after all bad rows that the error will name.
    pub(super) fn check_is_wanted(&self, file: u32, row: u64) -> Result<(), BuildError> {
        match self.bad_rows.is_past_last(RowId::new(file, row).after(self.first_file)) {
            true => self.bad_rows.check(),
            false => Ok(()),
        }
    }

    /// Accepts the key and value of a row. A key or value over the limits, or of another type, makes it a bad row.
    #[inline]
    pub(crate) fn accept(&mut self, row: RowId, key: &[u8], form: ValueForm, value: &[u8]) -> Result<(), BuildError> {
        match self.kind {
            RowKind::Vertex => self.accept_names(row, key, &[Side::Vertex], value),
            RowKind::Edge => self.accept_names(row, key, &[Side::From, Side::To], value),
            RowKind::Deletion => self.delete(row, key),
            RowKind::Stored => {
                let plain = match self.times {
                    Some(times) => times.divide(value).map(|(_, plain)| plain),
                    None => Some(value),
                };
                let Some(plain) = plain else {
                    let reason = "no time stands before the value".to_owned();
                    return self.refuse_value(row, reason, key, value);
                };
                match self
                    .encoder
                    .as_ref()
                    .map(|encoder| encoder.note(plain, &mut self.schema_ids))
                {
                    Some(Err(reason)) => self.refuse_value(row, reason, key, plain),
                    Some(Ok(())) | None => self.append(row, key, value),
                }
            }
            RowKind::Record => {
                let Some(encoder) = &self.encoder else {
                    return self.append(row, key, value);
                };
                match encoder.key(key).and_then(|key| Ok((key, encoder.value(form, value)?))) {
                    Ok((key, value)) => self.append(row, &key, &value),
                    Err(reason) => self.refuse_value(row, reason, key, value),
                }
            }
        }
    }

    #[cold]
    fn refuse_value(&mut self, row: RowId, reason: String, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        let key: Vec<String> = match self.encoder.as_ref().is_some_and(Encoder::has_parts) {
            true => parts_in(key).map(|(part, _)| format!("{:?}", excerpt(part))).collect(),
            false => vec![format!("{:?}", excerpt(key))],
        };
        self.refuse(
            row,
            reason,
            format!("key {} value {:?}", key.join(", "), excerpt(value)),
        )
    }

    #[inline]
    fn append(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return self.refuse_lengths(row, key, value);
        }
        self.count_row(row)?;
        let hash = self.target.append(row.after(self.first_file), key, value)?;
        self.samples.offer(hash, row, value);
        Ok(())
    }

    /// Accepts the key of a row that deletes it.
    pub(crate) fn delete(&mut self, row: RowId, key: &[u8]) -> Result<(), BuildError> {
        let encoded = match &self.encoder {
            Some(encoder) => encoder.key(key),
            None => Ok(key.into()),
        };
        let key = match &encoded {
            Ok(encoded) => encoded,
            Err(reason) => return self.refuse_value(row, reason.clone(), key, b""),
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return self.refuse_lengths(row, key, b"");
        }
        self.count_row(row)?;
        match &mut self.target {
            Target::Sort(appender) => appender.append(row.after(self.first_file), key, b"").map(drop),
            Target::Stream(stream) => stream.add(row, key, None).map(drop),
        }
    }

    /// Appends a mention of each named vertex, under its name. The first one takes the properties.
    fn accept_names(&mut self, row: RowId, key: &[u8], sides: &[Side], value: &[u8]) -> Result<(), BuildError> {
        for (name, side) in parts_in(key).map(|(name, _)| name).zip(sides) {
            if let Some(reason) = fault_of_name(name, *side) {
                let names: Vec<String> = parts_in(key).map(|(name, _)| format!("{:?}", excerpt(name))).collect();
                return self.refuse(row, reason, format!("{} {}", names.join(", "), excerpt(value)));
            }
        }
        if value.len() > VALUE_BYTES_MAX {
            let reason = format!("its properties have {} bytes, more than {VALUE_BYTES_MAX}", value.len());
            return self.refuse(row, reason, excerpt(value));
        }
        self.count_row(row)?;
        let row = row.after(self.first_file);
        let mut properties = if value == b"{}" { b"" } else { value };
        for ((name, is_number), side) in parts_in(key).zip(sides) {
            let mention = Mention {
                side: *side,
                is_number,
                properties,
            };
            self.mention.clear();
            mention.write_to(&mut self.mention);
            self.target.append(row, name, &self.mention)?;
            properties = b"";
        }
        Ok(())
    }

    #[cold]
    fn refuse_lengths(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        let reason = if key.is_empty() {
            "the key is empty".to_owned()
        } else if key.len() > KEY_BYTES_MAX {
            format!("the key has {} bytes, more than {KEY_BYTES_MAX}", key.len())
        } else {
            format!("the value has {} bytes, more than {VALUE_BYTES_MAX}", value.len())
        };
        self.refuse_value(row, reason, key, value)
    }

    /// A bad row.
    #[cold]
    pub(crate) fn refuse(&mut self, row: RowId, reason: String, sample: String) -> Result<(), BuildError> {
        self.count_row(row)?;
        self.progress.rows_bad.fetch_add(1, Ordering::Relaxed);
        self.bad_rows.add(row.after(self.first_file), reason, sample)
    }

    #[inline]
    fn count_row(&mut self, row: RowId) -> Result<(), BuildError> {
        self.rows_uncounted += 1;
        if self.rows_uncounted < ROWS_PER_COUNT {
            return Ok(());
        }
        self.publish()?;
        self.check_is_wanted(row.file(), row.row())
    }

    fn publish(&mut self) -> Result<(), BuildError> {
        self.progress
            .rows_read
            .fetch_add(self.rows_uncounted, Ordering::Relaxed);
        self.rows_uncounted = 0;
        self.progress.check()
    }

    /// Ends the rows of this thread.
    pub(crate) fn close(mut self) -> Result<Closed, BuildError> {
        self.publish()?;
        let tallies = match self.target {
            Target::Sort(appender) => appender.close(),
            Target::Stream(_) => Vec::new(),
        };
        Ok(Closed {
            tallies,
            samples: self.samples,
            schema_ids: self.schema_ids,
        })
    }
}

/// Why a vertex cannot have this name.
fn fault_of_name(name: &[u8], side: Side) -> Option<String> {
    let what = side.description();
    if name.is_empty() {
        Some(format!("{what} is empty"))
    } else if name.len() > NAME_BYTES_MAX {
        Some(format!("{what} has {} bytes, more than {NAME_BYTES_MAX}", name.len()))
    } else if str::from_utf8(name).is_err() {
        Some(format!("{what} is not UTF-8"))
    } else {
        None
    }
}
