//! Records in memory, of all tables together, so that an event loop can answer without waiting for a disk. It
//! also knows of keys that they have no record.
//!
//! It never has what is older than the last write that returned. Writers put what they wrote, in the order of
//! the log; a reader puts what it read from the disk only if nobody wrote the key since it began to read.
//!
//! Memory is what a look-up waits for: so several go together, each a step before any goes the next one, which looks at what
//! this one has begun to load.

mod ghosts;
mod index;
mod reading;
mod shard;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::index::Hash;
use self::reading::{Joined, Reading, Readings};
pub(crate) use self::shard::Known;
use self::shard::{Entry, Shard, Sought};
use crate::batch::Pair;
use crate::budget::{CacheBudget, CacheShare};
use crate::engine::{Extent, Hot, Spot};

/// So many locks. A look-up of several keys holds those of all of them; who writes holds one at a time.
const SHARDS: usize = 16;

/// How many keys are looked up together.
const TOGETHER: usize = 64;

/// How many records are being loaded while one is looked at.
const LOADED_AHEAD: usize = 2;

/// What takes more than this part of the cache is not kept.
const PART_MAX: u64 = 16;

/// What comes in has at most so many times its own bytes evicted: the limit may have fallen by much.
const EVICTED_MAX: u64 = 4;

/// After so many changes it asks how much it may take.
const CHANGES_BETWEEN: u64 = 256;

pub(crate) struct RecordCache {
    shards: [RwLock<Shard>; SHARDS],
    readings: [Mutex<Readings>; SHARDS],
    /// Of hashes: unknown to who chooses keys.
    seed: u64,
    share: CacheShare,
    /// How much it may take, in bytes, when it last asked.
    bytes_max: AtomicU64,
    changes: AtomicU64,
}

/// The hash of a key, and its shard.
#[derive(Debug, Clone, Copy)]
struct Place {
    shard: usize,
    hash: Hash,
}

type Places = SmallVec<[Place; TOGETHER]>;

/// Those that are looked into.
type Shards<'a> = [Option<RwLockReadGuard<'a, Shard>>; SHARDS];

/// A reading of the storage that is this thread's.
struct OwnReading<'a> {
    readings: &'a Mutex<Readings>,
    reading: Arc<Reading>,
}

impl RecordCache {
    pub(crate) fn new(budget: &CacheBudget) -> Self {
        let share = budget.share();
        Self {
            shards: std::array::from_fn(|_| RwLock::new(Shard::new())),
            readings: Default::default(),
            seed: RandomState::new().hash_one(0),
            bytes_max: share.bytes_max().into(),
            share,
            changes: AtomicU64::new(0),
        }
    }

    fn place(&self, table: u64, key: &[u8]) -> Place {
        let hash = xxh3_64_with_seed(key, self.seed ^ table);
        Place {
            shard: (hash >> 32) as usize % SHARDS,
            hash: hash as Hash,
        }
    }

    fn read(&self, shard: usize) -> RwLockReadGuard<'_, Shard> {
        // None of its methods panics.
        self.shards[shard].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, shard: usize) -> RwLockWriteGuard<'_, Shard> {
        self.shards[shard].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a key, as [`Table::get_hot`](crate::Table::get_hot) answers.
    pub(crate) fn get(&self, table: u64, key: &[u8]) -> Hot<Bytes> {
        let Place { shard, hash } = self.place(table, key);
        self.get_in(shard, &Sought { table, key, hash })
    }

    fn get_in(&self, shard: usize, sought: &Sought<'_>) -> Hot<Bytes> {
        match self.read(shard).get(sought).map(Known::hot) {
            Some(Hot::Found(pair)) => Hot::Found(pair.shared_value()),
            Some(Hot::Absent) => Hot::Absent,
            Some(Hot::Cold) | None => Hot::Cold,
        }
    }

    /// What [`Table::look_at_hot`](crate::Table::look_at_hot) shows.
    pub(crate) fn look_at(
        &self,
        table: u64,
        keys: &[&[u8]],
        extent: Extent,
        look: &mut dyn FnMut(Hot<&[u8]>, Spot) -> bool,
    ) {
        for keys in keys.chunks(TOGETHER) {
            if !self.look_at_few(table, keys, extent, look) {
                return;
            }
        }
    }

    /// Whether `look` wants more.
    fn look_at_few(
        &self,
        table: u64,
        keys: &[&[u8]],
        extent: Extent,
        look: &mut dyn FnMut(Hot<&[u8]>, Spot) -> bool,
    ) -> bool {
        let places: Places = keys.iter().map(|key| self.place(table, key)).collect();
        let shards = self.read_all(&places);
        let approached = approach(|shard| shards[shard].as_deref(), &places);
        places.iter().zip(keys).enumerate().all(|(at, (place, key))| {
            if extent == Extent::Whole
                && let Some(later) = approached.get(at + LOADED_AHEAD).copied().flatten()
            {
                later.prefetch(Extent::Whole);
            }
            let hash = place.hash;
            let shard = shards[place.shard].as_deref();
            let known = shard.and_then(|shard| shard.get(&Sought { table, key, hash }));
            let hot = match known.map(Known::hot) {
                Some(Hot::Found(pair)) => Hot::Found(pair.value()),
                Some(Hot::Absent) => Hot::Absent,
                Some(Hot::Cold) | None => Hot::Cold,
            };
            look(hot, Spot::default())
        })
    }

    /// Begins to load what looking for these keys looks at, and the beginnings of their records.
    pub(crate) fn prefetch(&self, table: u64, keys: &[&[u8]]) {
        for keys in keys.chunks(TOGETHER) {
            let places: Places = keys.iter().map(|key| self.place(table, key)).collect();
            let shards = self.read_all(&places);
            approach(|shard| shards[shard].as_deref(), &places);
        }
    }

    /// The shards of these places. They are locked in their order: a lock for which somebody waits to write lets no more
    /// readers in, so that two who have what the other wants to read would wait for each other.
    fn read_all(&self, places: &[Place]) -> Shards<'_> {
        let mut is_wanted = [false; SHARDS];
        for place in places {
            is_wanted[place.shard] = true;
        }
        std::array::from_fn(|shard| is_wanted[shard].then(|| self.read(shard)))
    }

    /// What is known of a key, or what reading it says, of which many who ask at once share one.
    pub(crate) fn get_or_read<E>(
        &self,
        table: u64,
        key: &[u8],
        read: impl FnOnce() -> Result<Option<Bytes>, E>,
    ) -> Result<Option<Bytes>, E> {
        let Place { shard, hash } = self.place(table, key);
        let sought = Sought { table, key, hash };
        let own = loop {
            match self.get_in(shard, &sought) {
                Hot::Found(value) => return Ok(Some(value)),
                Hot::Absent => return Ok(None),
                Hot::Cold => {}
            }
            let readings = &self.readings[shard];
            let joined = lock(readings).join(&sought);
            match joined {
                Joined::Own(reading) => break OwnReading { readings, reading },
                Joined::Others(reading) => reading.wait(),
            }
        };
        let value = read()?;
        // Copied: what was read is a part of a block, which it would keep in memory whole.
        let known = Known {
            table,
            pair: Pair::copied(key, value.as_deref().unwrap_or_default()),
            is_there: value.is_some(),
        };
        let mut shard = self.write(shard);
        if own.end() {
            self.put_in(&mut shard, hash, known);
        }
        Ok(value)
    }

    /// Notes what was written, in its order.
    pub(crate) fn put(&self, written: impl IntoIterator<Item = Known>) {
        let place = |known: Known| (self.place(known.table, known.pair.key()), known);
        let mut placed: Vec<_> = written.into_iter().map(place).collect();
        // Those of one key stay in their order.
        placed.sort_by_key(|(place, _)| place.shard);
        let mut placed = placed.into_iter();
        while let Some((Place { shard: number, .. }, _)) = placed.as_slice().first() {
            let number = *number;
            let mut shard = self.write(number);
            let of_shard = placed.as_slice().iter().map(|(place, _)| *place);
            let of_shard: Places = of_shard.take_while(|place| place.shard == number).collect();
            for places in of_shard.chunks(TOGETHER) {
                approach(|_| Some(&*shard), places);
            }
            let mut readings = lock(&self.readings[number]);
            for (Place { hash, .. }, known) in placed.by_ref().take(of_shard.len()) {
                readings.forget(&known.sought(hash));
                self.put_in(&mut shard, hash, known);
            }
        }
    }

    fn put_in(&self, shard: &mut Shard, hash: Hash, known: Known) {
        let before = shard.bytes();
        let bytes = known.bytes();
        let bytes_max = self.bytes_max();
        if bytes > bytes_max / PART_MAX {
            shard.remove(&known.sought(hash));
        } else {
            shard.put(hash, known);
        }
        let others = self.share.bytes().load(Relaxed).saturating_sub(before);
        let floor = shard.bytes().saturating_sub(bytes * EVICTED_MAX);
        while others + shard.bytes() > bytes_max && shard.bytes() > floor && shard.evict() {}
        // The difference, which may be below zero.
        let difference = shard.bytes().wrapping_sub(before);
        self.share.bytes().fetch_add(difference, Relaxed);
    }

    /// How much it may take, in bytes.
    fn bytes_max(&self) -> u64 {
        if self.changes.fetch_add(1, Relaxed).is_multiple_of(CHANGES_BETWEEN) {
            self.bytes_max.store(self.share.bytes_max(), Relaxed);
        }
        self.bytes_max.load(Relaxed)
    }

    /// Forgets a key.
    #[cfg(feature = "mysql")]
    pub(crate) fn forget(&self, table: u64, key: &[u8]) {
        let Place { shard: number, hash } = self.place(table, key);
        let sought = Sought { table, key, hash };
        let mut shard = self.write(number);
        lock(&self.readings[number]).forget(&sought);
        let before = shard.bytes();
        shard.remove(&sought);
        self.share.bytes().fetch_sub(before - shard.bytes(), Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for (number, readings) in self.readings.iter().enumerate() {
            let mut shard = self.write(number);
            lock(readings).clear();
            let emptied = std::mem::replace(&mut *shard, Shard::new());
            self.share.bytes().fetch_sub(emptied.bytes(), Relaxed);
        }
    }

    /// How much it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.share.bytes().load(Relaxed)
    }
}

/// The entries that may be those of some places. They, and the beginnings of their records, are being loaded.
fn approach<'a>(
    shard: impl Fn(usize) -> Option<&'a Shard>,
    places: &[Place],
) -> SmallVec<[Option<&'a Entry>; TOGETHER]> {
    for place in places {
        shard(place.shard).inspect(|shard| shard.prefetch(place.hash));
    }
    let entry = |place: &Place| shard(place.shard)?.approach(place.hash);
    let entries: SmallVec<[_; TOGETHER]> = places.iter().map(entry).collect();
    for entry in entries.iter().flatten() {
        entry.prefetch(Extent::Beginning);
    }
    entries
}

impl OwnReading<'_> {
    /// Whether nobody wrote the key since this began.
    fn end(&self) -> bool {
        lock(self.readings).remove(&self.reading)
    }
}

impl Drop for OwnReading<'_> {
    fn drop(&mut self) {
        // Unless it is over.
        self.end();
        self.reading.end();
    }
}

fn lock(readings: &Mutex<Readings>) -> MutexGuard<'_, Readings> {
    // A list, whole whoever panicked.
    readings.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
