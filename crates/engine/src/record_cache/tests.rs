use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use super::*;

const MEANWHILE: Duration = Duration::from_millis(50);

fn cache(bytes: u64) -> RecordCache {
    RecordCache::new(&CacheBudget::new(bytes))
}

fn known(table: u64, key: &[u8], value: Option<&[u8]>) -> Known {
    Known {
        table,
        pair: Pair::copied(key, value.unwrap_or_default()),
        is_there: value.is_some(),
    }
}

fn put(cache: &RecordCache, key: &[u8], value: &[u8]) {
    cache.put([known(1, key, Some(value))]);
}

fn found(value: &'static str) -> Hot<Bytes> {
    Hot::Found(value.into())
}

fn read(value: &'static str) -> Result<Option<Bytes>, ()> {
    Ok(Some(value.into()))
}

#[test]
fn a_read_overtaken_by_a_write_is_not_cached() {
    let cache = cache(1 << 20);
    let answer = cache.get_or_read(1, b"key", || {
        put(&cache, b"key", b"new");
        read("old")
    });
    assert_eq!((answer, cache.get(1, b"key")), (read("old"), found("new")));
    let answer = cache.get_or_read(1, b"other", || {
        cache.clear();
        read("old")
    });
    assert_eq!((answer, cache.get(1, b"other")), (read("old"), Hot::Cold));
}

#[test]
fn reads_are_cached_but_failures_are_not() {
    let cache = cache(1 << 20);
    assert_eq!(cache.get_or_read(1, b"key", || Err(())), Err(()));
    assert_eq!(cache.get_or_read(1, b"key", || read("value")), read("value"));
    assert_eq!(cache.get_or_read(1, b"key", || Err(())), read("value"));
    assert_eq!(cache.get_or_read(1, b"none", || Ok::<_, ()>(None)), Ok(None));
    assert_eq!(cache.get(1, b"none"), Hot::Absent);
}

#[test]
fn concurrent_callers_share_one_read() {
    let cache = cache(1 << 20);
    let (reads, all_ask) = (AtomicUsize::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                all_ask.wait();
                let answer = cache.get_or_read(1, b"key", || {
                    reads.fetch_add(1, Relaxed);
                    // Time for the other readers to ask meanwhile; readers that are later find the cached value.
                    thread::sleep(MEANWHILE);
                    read("value")
                });
                assert_eq!(answer, read("value"));
            });
        }
    });
    assert_eq!(reads.into_inner(), 1);
}

#[test]
fn a_caller_waiting_for_a_read_that_panics_reads_itself() {
    let cache = cache(1 << 20);
    let has_begun = Barrier::new(2);
    thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _ = cache.get_or_read::<()>(1, b"key", || {
                has_begun.wait();
                thread::sleep(MEANWHILE);
                panic!("as the test wants");
            });
        });
        has_begun.wait();
        assert_eq!(cache.get_or_read(1, b"key", || read("value")), read("value"));
        panics.join().unwrap_err();
    });
}

#[test]
fn an_uncacheable_value_does_not_leave_the_old_one() {
    let cache = cache(1 << 16);
    for _ in 0..1000 {
        put(&cache, b"key", b"old");
        put(&cache, b"key", &[0; 1 << 16]);
        assert_eq!((cache.get(1, b"key"), cache.bytes()), (Hot::Cold, 0));
    }
}

#[test]
fn tables_are_apart_and_absence_is_known() {
    let cache = cache(1 << 20);
    cache.put([known(1, b"key", None)]);
    assert_eq!(cache.get(1, b"key"), Hot::Absent);
    assert_eq!(cache.get(2, b"key"), Hot::Cold);
    cache.clear();
    assert_eq!((cache.get(1, b"key"), cache.bytes()), (Hot::Cold, 0));
}

#[test]
fn it_keeps_within_its_limit_also_when_that_falls() {
    let budget = CacheBudget::new(1 << 18);
    let cache = RecordCache::new(&budget);
    let fill = || {
        for number in 0..20_000_u32 {
            put(&cache, &number.to_be_bytes(), &[1; 100]);
        }
        cache.bytes()
    };
    let bytes = fill();
    assert!((1 << 17..=1 << 18).contains(&bytes), "{bytes} bytes");
    // Another engine uses half of the budget.
    let other = budget.share();
    other.bytes().store(1 << 18, Relaxed);
    let bytes = fill();
    assert!((1 << 16..=1 << 17).contains(&bytes), "{bytes} bytes");
}

/// The cache either does not know a key or returns the last value that was put, whatever was overwritten, forgotten and
/// evicted before.
#[test]
fn it_returns_the_last_value_that_was_put() {
    let cache = cache(1 << 16);
    let mut random = fastrand::Rng::with_seed(7);
    let mut last = vec![None; 300];
    let key = |number: usize| format!("key {number}").into_bytes();
    let (mut seen, mut cold) = (0, 0);
    for _ in 0..2000 {
        let written: Vec<_> = (0..random.usize(..20))
            .map(|_| {
                let number = random.usize(..last.len());
                let value = random.bool().then(|| vec![random.u8(..); random.usize(..300)]);
                last[number] = Some(value.clone());
                known(1, &key(number), value.as_deref())
            })
            .collect();
        cache.put(written);
        let forgotten = random.usize(..last.len());
        #[cfg(feature = "mysql")]
        {
            cache.forget(1, &key(forgotten));
            assert_eq!(cache.get(1, &key(forgotten)), Hot::Cold);
        }
        for _ in 0..random.usize(..150) {
            let number = random.usize(..last.len());
            match (cache.get(1, &key(number)), &last[number]) {
                (Hot::Found(value), Some(Some(expected))) => assert_eq!(value, expected),
                (Hot::Absent, Some(None)) => {}
                (Hot::Cold, _) => cold += 1,
                (told, expected) => panic!("{told:?}, expected {expected:?}"),
            }
            seen += 1;
        }
    }
    assert!(cold > seen / 20 && cold < seen / 2, "{cold} of {seen} are cold");
}

/// How many of these lookups hit in an LRU cache of `entries_max` entries.
fn hits_of_lru(keys: &[u32], entries_max: usize) -> usize {
    let mut recent = VecDeque::new();
    keys.iter()
        .filter(|key| {
            let at = recent.iter().position(|other| other == *key);
            match at {
                Some(at) => drop(recent.remove(at)),
                None if recent.len() == entries_max => drop(recent.pop_front()),
                None => {}
            }
            recent.push_back(**key);
            at.is_some()
        })
        .count()
}

/// How many of these lookups hit in our cache with room for `entries_max` entries.
fn hits(keys: &[u32], entries_max: u64) -> usize {
    let value = [0; 300];
    let cache = cache((4 + value.len() as u64 + ENTRY_OVERHEAD_BYTES) * entries_max);
    let is_hit = |key: &&u32| {
        let mut has_read = false;
        let read = || {
            has_read = true;
            Ok::<_, ()>(Some(Bytes::copy_from_slice(&value)))
        };
        cache.get_or_read(1, &key.to_be_bytes(), read).unwrap();
        !has_read
    };
    keys.iter().filter(is_hit).count()
}

#[test]
fn frequently_used_keys_stay() {
    let mut random = fastrand::Rng::with_seed(3);
    // Approximately Zipfian, over 20,000 keys.
    let mut often = || (20_000_f64.powf(random.f64()) as u32).min(19_999);
    let skewed: Vec<u32> = (0..60_000).map(|_| often()).collect();
    let (ours, lru) = (hits(&skewed, 1000), hits_of_lru(&skewed, 1000));
    assert!(ours > lru, "{ours} of skewed keys, LRU {lru}");
    // A mix of these keys and keys that occur once.
    let mixed: Vec<u32> = (0..60_000)
        .map(|at| if at % 2 == 0 { often() } else { 100_000 + at })
        .collect();
    let (ours, lru) = (hits(&mixed, 1000), hits_of_lru(&mixed, 1000));
    assert!(ours > lru * 11 / 10, "{ours} of mixed keys, LRU {lru}");
}

/// No reader sees a value older than the last write that had returned, while all keys are written, read and evicted.
#[test]
fn no_reader_sees_a_value_older_than_the_last_write() {
    const KEYS: usize = 200;
    let cache = cache(1 << 14);
    let storage = [const { AtomicU64::new(0) }; KEYS];
    let acknowledged = [const { AtomicU64::new(0) }; KEYS];
    let is_over = AtomicUsize::new(0);
    let (reads, hits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let version = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().unwrap());
    thread::scope(|scope| {
        for reader in 0..3 {
            let (cache, storage, acknowledged, is_over) = (&cache, &storage, &acknowledged, &is_over);
            let (reads, hits) = (&reads, &hits);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(reader);
                let mut rounds = 0;
                // On a busy machine the writer may be done before a reader begins.
                while is_over.load(Relaxed) == 0 || rounds < 100 {
                    rounds += 1;
                    let numbers: Vec<usize> = (0..4).map(|_| random.usize(..KEYS)).collect();
                    let least: Vec<u64> = numbers.iter().map(|at| acknowledged[*at].load(SeqCst)).collect();
                    let seen: Vec<_> = numbers
                        .iter()
                        .map(|number| match cache.get(1, &number.to_be_bytes()) {
                            Hot::Found(value) => Some(version(&value)),
                            Hot::Absent | Hot::Cold => None,
                        })
                        .collect();
                    for ((number, least), seen) in numbers.iter().zip(&least).zip(seen) {
                        hits.fetch_add(usize::from(seen.is_some()), Relaxed);
                        let read = || {
                            let version = storage[*number].load(SeqCst);
                            Ok::<_, ()>(Some(version.to_be_bytes().to_vec().into()))
                        };
                        let read = cache.get_or_read(1, &number.to_be_bytes(), read).unwrap().unwrap();
                        for version in seen.into_iter().chain([version(&read)]) {
                            assert!(
                                version >= *least,
                                "version {version} of key {number}, expected at least {least}"
                            );
                        }
                        reads.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(100);
        for version in 1..30_000_u64 {
            let number = random.usize(..KEYS);
            storage[number].store(version, SeqCst);
            cache.put([known(1, &number.to_be_bytes(), Some(&version.to_be_bytes()))]);
            acknowledged[number].store(version, SeqCst);
        }
        is_over.store(1, Relaxed);
    });
    let (reads, hits) = (reads.into_inner(), hits.into_inner());
    assert!(hits > reads / 20 && hits < reads, "{hits} of {reads} in memory");
}
