//! The steps of a look-up and their results.
//!
//! None of them waits for the disk, except [`Version::get`] and [`Version::get_many`].

use std::ops::{Deref, Range};

use fondaco_model::PartitionId;

use super::Version;
use super::cold::{ColdRead, ColdStep};
use crate::chunk::index::{bucket_range, entry_range};
use crate::chunk::reader::Chunk;
use crate::error::FormatError;
use crate::fault::Watch;
use crate::hash::{chunk_of_hash, key_hash};
use crate::record::{RecordSearch, search_records};

/// A bucket up to this length is read at once, a longer one record by record.
pub(super) const BUCKET_READ_BYTES_MAX: usize = 128 * 1024;

/// How many cold reads of one call overlap: enough for a fast disk, and few enough that their pages stay in memory until
/// they are used.
const READS_AHEAD_MAX: usize = 256;

/// The possible location of a key: the first step of a look-up.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// The index of the chunk in [`Version::chunks`], or [`EMPTY`] or [`NOT_HELD`]: no version has that many chunks, so
    /// the bounds check of the index detects both at no extra cost.
    chunk: u32,
    /// The bucket in the chunk; without a chunk, the partition.
    bucket: u32,
}

/// The key's partition has no records.
const EMPTY: u32 = u32::MAX;
/// The key's partition is not held.
pub(super) const NOT_HELD: u32 = u32::MAX - 1;

impl Probe {
    /// A placeholder, for use where no version is open.
    pub const NOT_HELD: Self = Self {
        chunk: NOT_HELD,
        bucket: 0,
    };

    /// Whether the version holds the key's partition, so that it knows whether the key exists.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.chunk != NOT_HELD
    }
}

/// The answer to a look-up that does not wait.
#[derive(Debug)]
pub enum Lookup<'v> {
    /// The value.
    Found(Value<'v>),
    /// The version does not have the key.
    Absent,
    /// The disk has to be read first.
    Cold(ColdRead),
}

/// A value, verified.
#[derive(Debug, Clone)]
pub struct Value<'v> {
    content: Content<'v>,
    time_ms: Option<u64>,
}

#[derive(Debug, Clone)]
enum Content<'v> {
    Mapped { bytes: &'v [u8], watch: Watch },
    Owned { bytes: Vec<u8>, range: Range<usize> },
}

impl Value<'_> {
    /// Whether all bytes read of it so far are the verified ones. Call this after the last use of the bytes: a page of
    /// a mapped file may become unreadable at any time, and is zeros then. If this returns false, the bytes are
    /// worthless, and the key has to be looked up again.
    #[inline]
    pub fn is_intact(&self) -> bool {
        match &self.content {
            Content::Mapped { watch, .. } => watch.is_clean(),
            Content::Owned { .. } => true,
        }
    }

    /// The time of its record, if that has one, in milliseconds since 1970.
    pub(super) fn time_ms(&self) -> Option<u64> {
        self.time_ms
    }

    pub(super) fn owned(bytes: Vec<u8>, range: Range<usize>, time_ms: Option<u64>) -> Value<'static> {
        debug_assert!(range.end <= bytes.len());
        let content = Content::Owned { bytes, range };
        Value { content, time_ms }
    }

    pub(super) fn owned_whole(bytes: Vec<u8>, time_ms: Option<u64>) -> Value<'static> {
        let range = 0..bytes.len();
        Value::owned(bytes, range, time_ms)
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.content {
            Content::Mapped { bytes, .. } => bytes,
            Content::Owned { bytes, range } => &bytes[range.clone()],
        }
    }
}

/// A value, with the time of its record in milliseconds since 1970 if that has one.
pub type Dated = (Vec<u8>, Option<u64>);

impl Version {
    /// For how many keys at once [`Version::prefetch`] is best called.
    pub const GROUP: usize = 16;

    /// Looks up a key, waiting for the disk if necessary: usually once, and never for data in memory.
    ///
    /// The result may refer to a mapped file. Call [`Value::is_intact`] after the last use of its bytes: it checks
    /// whether the disk could provide all of them. [`Version::get_owned`] does this itself.
    ///
    /// # Errors
    /// [`FormatError::NotHeld`], corruption with the file's name, or a failed read. Never a wrong value.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, FormatError> {
        self.get_probed(&self.probe(key), key)
    }

    /// Looks up a key like [`Version::get`], and copies its value.
    ///
    /// # Errors
    /// As [`Version::get`].
    pub fn get_owned(&self, key: &[u8]) -> Result<Option<Vec<u8>>, FormatError> {
        loop {
            let Some(value) = self.get(key)? else { return Ok(None) };
            let bytes = value.to_vec();
            // Otherwise the next look-up reads the file instead of the mapping.
            if value.is_intact() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Looks up a key like [`Version::get_owned`], whether or not its record has expired, with the time of the record if
    /// that has one.
    ///
    /// # Errors
    /// As [`Version::get`].
    pub fn get_dated(&self, key: &[u8]) -> Result<Option<Dated>, FormatError> {
        loop {
            let Some(value) = self.get_any(&self.probe(key), key)? else {
                return Ok(None);
            };
            let dated = (value.to_vec(), value.time_ms());
            if value.is_intact() {
                return Ok(Some(dated));
            }
        }
    }

    #[inline]
    fn get_probed(&self, probe: &Probe, key: &[u8]) -> Result<Option<Value<'_>>, FormatError> {
        let found = self.get_any(probe, key)?;
        Ok(found.filter(|value| !self.is_over(value.time_ms())))
    }

    /// Whether or not its record has expired.
    #[inline]
    fn get_any(&self, probe: &Probe, key: &[u8]) -> Result<Option<Value<'_>>, FormatError> {
        match self.lookup_any(probe, key)? {
            Lookup::Found(value) => Ok(Some(value)),
            Lookup::Absent => Ok(None),
            Lookup::Cold(read) => self.get_cold(read, key),
        }
    }

    /// Whether or not its record has expired.
    #[cold]
    fn get_cold(&self, read: ColdRead, key: &[u8]) -> Result<Option<Value<'_>>, FormatError> {
        let mut read = read.buffered();
        loop {
            let bytes = self.read_blocking(&read)?;
            match self.complete_any(read, key, bytes)? {
                ColdStep::Found(value) => return Ok(Some(value)),
                ColdStep::Absent => return Ok(None),
                ColdStep::Read(next) => read = next,
            }
        }
    }

    /// The first step of a look-up: finds the possible location of the key, and prefetches its index entry.
    #[inline]
    pub fn probe(&self, key: &[u8]) -> Probe {
        let partition = if self.partition_starts.len() == 2 {
            PartitionId::new(0)
        } else {
            self.manifest.partitions.partition_of(self.slots.slot(key))
        };
        let at = partition.get() as usize;
        let start = self.partition_starts[at];
        let count = self.partition_starts[at + 1] - start;
        if count == 0 {
            return self.probe_without_chunk(partition);
        }
        let hash = key_hash(key);
        let chunk = start + chunk_of_hash(hash, count);
        let bucket = self.chunks[chunk as usize].bucket_of(hash);
        self.prefetch_index(chunk, bucket);
        Probe { chunk, bucket }
    }

    fn probe_without_chunk(&self, partition: PartitionId) -> Probe {
        Probe {
            chunk: if self.holds(partition) { EMPTY } else { NOT_HELD },
            bucket: partition.get(),
        }
    }

    /// The second step, for callers with several keys: prefetches the key's records, so that memory accesses of many
    /// keys overlap. They overlap most if this is called for a group of [`Version::GROUP`] keys with nothing else in between.
    #[inline]
    pub fn prefetch(&self, probe: &Probe) {
        let Some(chunk) = self.chunks.get(probe.chunk as usize) else {
            return;
        };
        // Short, and without calls: where a page is not in the TLB, a prefetch holds back all that is behind it until the page is
        // found. So many of them must fit into what the processor looks ahead.
        let range = match self.resident.get() {
            Some(resident) => entry_range(resident.entry(probe.chunk, probe.bucket)),
            None => match chunk.hot_block(probe.bucket) {
                Some(block) => bucket_range(block, probe.bucket),
                None => return,
            },
        };
        chunk.prefetch_range(range);
    }

    #[inline]
    fn prefetch_index(&self, chunk: u32, bucket: u32) {
        match self.resident.get() {
            Some(resident) => prefetch(resident.entry(chunk, bucket).as_ptr()),
            None => self.chunks[chunk as usize].prefetch_entry(bucket),
        }
    }

    /// The range of a bucket's records, if the index entry is in memory.
    #[inline]
    fn hot_range(&self, number: u32, chunk: &Chunk, bucket: u32) -> Option<Result<Range<usize>, FormatError>> {
        match self.resident.get() {
            Some(resident) => Some(chunk.checked(entry_range(resident.entry(number, bucket)))),
            None => Some(chunk.bucket_range(chunk.hot_block(bucket)?, bucket)),
        }
    }

    /// The last step: the answer, or the read that it needs. Never waits for the disk.
    ///
    /// # Errors
    /// [`FormatError::NotHeld`], which [`Probe::is_held`] predicts, or corruption with the file's name.
    #[inline]
    pub fn lookup(&self, probe: &Probe, key: &[u8]) -> Result<Lookup<'_>, FormatError> {
        match self.lookup_any(probe, key)? {
            Lookup::Found(value) if self.is_over(value.time_ms()) => Ok(Lookup::Absent),
            found => Ok(found),
        }
    }

    /// Whether or not the record has expired.
    #[inline]
    fn lookup_any(&self, probe: &Probe, key: &[u8]) -> Result<Lookup<'_>, FormatError> {
        let number = probe.chunk;
        let Some(chunk) = self.chunks.get(number as usize) else {
            return Self::lookup_without_chunk(probe);
        };
        let watch = Watch::begin();
        let Some(range) = self.hot_range(number, chunk, probe.bucket) else {
            return Ok(Lookup::Cold(ColdRead::index(number, probe.bucket)));
        };
        let range = match range {
            Ok(range) if watch.is_clean() => range,
            Err(error) if watch.is_clean() => {
                self.note(number, &error);
                return Err(error);
            }
            _ => return self.lookup_again(probe, key),
        };
        if range.is_empty() {
            return Ok(Lookup::Absent);
        }
        if range.len() > BUCKET_READ_BYTES_MAX {
            return Ok(Lookup::Cold(ColdRead::large(number, probe.bucket, range)));
        }
        let bucket = &chunk.data().bytes()[range.clone()];
        // Loaded while the stamps are checked. A prefetch never waits, not even for the disk.
        chunk.prefetch_range(range.start as u32..range.end as u32);
        if !chunk.data().is_resident(range.clone()) {
            return Ok(Lookup::Cold(self.cold_bucket(probe, chunk, range)));
        }
        let found = match search_records(bucket, key) {
            RecordSearch::Found {
                value,
                stored_as_is,
                time_ms,
            } => {
                let stored = &bucket[value];
                match self.decode(chunk, stored, stored_as_is) {
                    Ok(Some(decoded)) => Ok(Lookup::Found(Value::owned_whole(decoded, time_ms))),
                    Ok(None) => {
                        let content = Content::Mapped { bytes: stored, watch };
                        Ok(Lookup::Found(Value { content, time_ms }))
                    }
                    Err(error) => Err(error),
                }
            }
            RecordSearch::Absent => Ok(Lookup::Absent),
            RecordSearch::Corrupt(reason) => Err(chunk.corrupt_data(reason)),
        };
        match found {
            found if !watch.is_clean() => {
                drop(found);
                Ok(Lookup::Cold(ColdRead::bucket(number, probe.bucket, range)))
            }
            Err(error) => {
                self.note(number, &error);
                Err(error)
            }
            found => found,
        }
    }

    /// Repeats a look-up after an unreadable page: the damaged mapping is not touched again.
    #[cold]
    fn lookup_again(&self, probe: &Probe, key: &[u8]) -> Result<Lookup<'_>, FormatError> {
        self.lookup_any(probe, key)
    }

    /// The read of a bucket that is not resident.
    #[cold]
    fn cold_bucket(&self, probe: &Probe, chunk: &Chunk, range: Range<usize>) -> ColdRead {
        let is_admitted = chunk.data().admits(&range);
        let read = ColdRead::bucket(probe.chunk, probe.bucket, range);
        if is_admitted { read } else { self.directly(read) }
    }

    #[cold]
    fn lookup_without_chunk(probe: &Probe) -> Result<Lookup<'static>, FormatError> {
        match probe.chunk {
            EMPTY => Ok(Lookup::Absent),
            _ => Err(FormatError::NotHeld {
                partition: PartitionId::new(probe.bucket),
            }),
        }
    }

    /// Looks up many keys, with the results of [`Version::get`] for each, and passes each answer with the index of its
    /// key. Several times faster than single look-ups: while one key's records are loaded from memory, the next keys
    /// are hashed. Keys that need the disk are answered last, in the order of the files, and their reads overlap.
    pub fn get_many<'v, K: AsRef<[u8]>>(
        &'v self,
        keys: &[K],
        mut each: impl FnMut(usize, Result<Option<Value<'v>>, FormatError>),
    ) {
        let mut cold = Vec::new();
        self.lookup_many(keys, |at, found| match found {
            Ok(Lookup::Found(value)) => each(at, Ok(Some(value))),
            Ok(Lookup::Absent) => each(at, Ok(None)),
            Ok(Lookup::Cold(read)) => cold.push((at, read)),
            Err(error) => each(at, Err(error)),
        });
        cold.sort_by_key(|(_, read)| read.place());
        for reads in cold.chunks(READS_AHEAD_MAX) {
            reads.iter().for_each(|(_, read)| self.read_ahead(read));
            for (at, read) in reads {
                let found = self.get_cold(read.clone(), keys[*at].as_ref());
                each(
                    *at,
                    found.map(|found| found.filter(|value| !self.is_over(value.time_ms()))),
                );
            }
        }
    }

    /// Looks up many keys without waiting for the disk, with the results of [`Version::lookup`] for each.
    fn lookup_many<'v, K: AsRef<[u8]>>(
        &'v self,
        keys: &[K],
        mut each: impl FnMut(usize, Result<Lookup<'v>, FormatError>),
    ) {
        const GROUP: usize = Version::GROUP;
        let mut probes = [[Probe::NOT_HELD; GROUP]; 3];
        let groups = || keys.chunks(GROUP).enumerate();
        let mut searched = groups();
        for step in 0..keys.len().div_ceil(GROUP) + 2 {
            if let Some((_, keys)) = groups().nth(step) {
                for (probe, key) in probes[step % 3].iter_mut().zip(keys) {
                    *probe = self.probe(key.as_ref());
                }
            }
            if let Some(group) = step.checked_sub(1) {
                probes[group % 3].iter().for_each(|probe| self.prefetch(probe));
            }
            if step >= 2
                && let Some((group, keys)) = searched.next()
            {
                for (at, (probe, key)) in probes[group % 3].iter().zip(keys).enumerate() {
                    each(group * GROUP + at, self.lookup(probe, key.as_ref()));
                }
            }
        }
    }

    /// The decoded value, or `None` if the stored bytes are the value.
    #[inline]
    pub(super) fn decode(
        &self,
        chunk: &Chunk,
        stored: &[u8],
        stored_as_is: bool,
    ) -> Result<Option<Vec<u8>>, FormatError> {
        if stored_as_is || self.decoder.is_identity() {
            return Ok(None);
        }
        let decoded = self.decoder.decode(stored, stored_as_is);
        decoded
            .map(|value| Some(value.into_owned()))
            .map_err(|reason| chunk.corrupt_data(&reason))
    }
}

/// Loads the cache line of an address into the processor's cache. A hint, for any address at all.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads nothing that the program sees, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
