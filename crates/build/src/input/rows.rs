//! The sink for rows of all readers: a good row goes into the sort, a bad row is counted.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use fondaco_model::{KEY_BYTES_MAX, VALUE_BYTES_MAX, ValueType};
use parking_lot::Mutex;

use crate::error::BuildError;
use crate::progress::Progress;
use crate::report::{BadRow, RowPlace, excerpt};
use crate::samples::Samples;
use crate::sort::{Appender, RowId};

/// How many bad rows are shown.
const BAD_ROW_SAMPLES_MAX: usize = 10;

/// After this many rows a thread adds to the shared counters and checks for cancellation.
const ROWS_PER_COUNT: u64 = 4096;

/// The bad rows of a build.
pub(crate) struct BadRows {
    rows_max: u64,
    files: Vec<PathBuf>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    count: u64,
    /// The first ones in the order of the input, so that they do not depend on the threads.
    samples: Vec<BadRow>,
}

impl BadRows {
    pub(crate) fn new(rows_max: u64, files: Vec<PathBuf>) -> Self {
        Self {
            rows_max,
            files,
            found: Mutex::default(),
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
        let place = found.samples.partition_point(|sample| sample.place < bad.place);
        found.samples.insert(place, bad);
        found.samples.truncate(BAD_ROW_SAMPLES_MAX);
        if found.count > self.rows_max {
            let (count, samples) = (found.count, found.samples.clone());
            return Err(BuildError::BadRows {
                count,
                max: self.rows_max,
                samples,
            });
        }
        Ok(())
    }

    /// The number of bad rows, and the first few.
    pub(crate) fn into_found(self) -> (u64, Vec<BadRow>) {
        let found = self.found.into_inner();
        (found.count, found.samples)
    }
}

/// One thread's sink of rows.
pub(crate) struct RowSink<'a> {
    appender: Appender<'a>,
    samples: Samples,
    bad_rows: &'a BadRows,
    progress: &'a Progress,
    value_type: ValueType,
    /// Rows that are not yet in the shared counter.
    rows_uncounted: u64,
}

impl<'a> RowSink<'a> {
    pub(crate) fn new(
        appender: Appender<'a>,
        samples: Samples,
        bad_rows: &'a BadRows,
        progress: &'a Progress,
        value_type: ValueType,
    ) -> Self {
        Self {
            appender,
            samples,
            bad_rows,
            progress,
            value_type,
            rows_uncounted: 0,
        }
    }

    pub(crate) fn progress(&self) -> &'a Progress {
        self.progress
    }

    /// Accepts the key and value of a row. A key or value over the limits, or a value of another type, makes it a bad row.
    #[inline]
    pub(crate) fn accept(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        match self.value_type {
            ValueType::Bytes | ValueType::Graph => self.append(row, key, value),
            ValueType::Ids => match encode_ids(value) {
                Ok(set) => self.append(row, key, &set),
                Err(reason) => {
                    let sample = format!("key {:?} value {:?}", excerpt(key), excerpt(value));
                    self.refuse(row, reason, sample)
                }
            },
        }
    }

    #[inline]
    fn append(&mut self, row: RowId, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return self.refuse_lengths(row, key, value);
        }
        self.count_row()?;
        let hash = self.appender.append(row, key, value)?;
        self.samples.offer(hash, row, value);
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
        let sample = format!("key {:?} value {:?}", excerpt(key), excerpt(value));
        self.refuse(row, reason, sample)
    }

    /// A bad row.
    #[cold]
    pub(crate) fn refuse(&mut self, row: RowId, reason: String, sample: String) -> Result<(), BuildError> {
        self.count_row()?;
        self.progress.rows_bad.fetch_add(1, Ordering::Relaxed);
        self.bad_rows.add(row, reason, sample)
    }

    #[inline]
    fn count_row(&mut self) -> Result<(), BuildError> {
        self.rows_uncounted += 1;
        if self.rows_uncounted < ROWS_PER_COUNT {
            Ok(())
        } else {
            self.publish()
        }
    }

    fn publish(&mut self) -> Result<(), BuildError> {
        self.progress
            .rows_read
            .fetch_add(self.rows_uncounted, Ordering::Relaxed);
        self.rows_uncounted = 0;
        self.progress.check()
    }

    /// Ends the rows of this thread.
    pub(crate) fn close(mut self) -> Result<(Vec<crate::sort::PartitionTally>, Samples), BuildError> {
        self.publish()?;
        Ok((self.appender.close(), self.samples))
    }
}

/// The encoded set of ids in a text, which may be a JSON array.
fn encode_ids(value: &[u8]) -> Result<Vec<u8>, String> {
    let text =
        str::from_utf8(value).map_err(|_| "the value is no text: ids are written as 5,1,9 or [5, 1, 9]".to_owned())?;
    let text = text.trim_ascii();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let ids = fondaco_ids::parse_text(inner.unwrap_or(text)).map_err(|error| error.to_string())?;
    fondaco_ids::encode(&ids).map_err(|error| error.to_string())
}
