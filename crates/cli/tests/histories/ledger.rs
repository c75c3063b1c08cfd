//! The history of all clients' requests and answers. Each answer is checked immediately against the promises of its
//! store.
//!
//! All times come from one clock that is never set. A write starts before anything is sent, and is acknowledged after
//! its answer has arrived; a read starts before it is sent. So if one event is recorded as earlier than another, it was
//! earlier.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use fondaco_simulation::versioned::{AddNumber, Broken, History, Knows, Sums, WriteNumber};
use parking_lot::Mutex;

use super::stores::{Keeps, Store};

/// The number of keys of a store that are written at a time.
const KEYS: usize = 6;
/// The number of writes after which other keys are used: each read of a key scans its whole history.
const WRITES_PER_GENERATION: u64 = 360;
/// A slower answer may have come from another replica than the one that was asked first.
const FAST: Duration = Duration::from_millis(100);
/// How long after the last fault and the last slow answer the cluster counts as calm.
const CALM_AFTER: Duration = Duration::from_millis(1200);
/// How many events of a key are printed when a check of it fails.
const WORDS_TOLD: usize = 60;
/// How many broken promises of a store are recorded.
const BROKEN_MAX: usize = 3;

/// The histories of all stores.
pub struct Ledger {
    began: Instant,
    accounts: Vec<Account>,
    /// When the last fault ended, in microseconds; the maximum while there is one.
    troubled_until_us: AtomicU64,
    /// When the last slow answer arrived.
    slow_at_us: AtomicU64,
}

/// The history of a store.
pub struct Account {
    pub store: &'static Store,
    book: Mutex<Book>,
    /// The number of writes started.
    writes: AtomicU64,
    /// The number of checked reads.
    reads: AtomicU64,
    /// The number of writes that were certainly executed only once.
    once: AtomicU64,
}

struct Book {
    tale: Tale,
    /// The events of each key, as text.
    words: BTreeMap<Bytes, Vec<String>>,
    broken: Vec<String>,
}

enum Tale {
    Values(History),
    Sums(Sums),
}

/// A write in flight.
pub struct Writing {
    account: usize,
    began_us: u64,
    was_calm: bool,
    number: Number,
}

enum Number {
    Write(WriteNumber),
    Add(AddNumber),
}

/// The result of a read.
#[derive(Debug)]
pub enum Seen {
    /// All concurrent values.
    All(Vec<Bytes>),
    /// The latest of them.
    Latest(Option<Bytes>),
    /// The total of a counter.
    Total(i64),
}

impl Ledger {
    /// An empty ledger.
    pub fn new(stores: &'static [Store]) -> Self {
        Self {
            began: Instant::now(),
            accounts: stores.iter().map(Account::new).collect(),
            troubled_until_us: AtomicU64::new(0),
            slow_at_us: AtomicU64::new(0),
        }
    }

    /// The histories of all stores, in their order.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The time since the ledger was created, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Records that a fault starts.
    pub fn trouble_begins(&self) {
        self.troubled_until_us.store(u64::MAX, SeqCst);
    }

    /// Records that there is no fault any more.
    pub fn trouble_ends(&self) {
        self.troubled_until_us.store(self.now_us(), SeqCst);
    }

    fn is_calm(&self, now_us: u64) -> bool {
        let since = |moment: &AtomicU64| moment.load(SeqCst).saturating_add(CALM_AFTER.as_micros() as u64);
        since(&self.troubled_until_us) <= now_us && since(&self.slow_at_us) <= now_us
    }

    /// Records the latency of an answer. Returns whether it was fast.
    fn took(&self, began_us: u64, now_us: u64) -> bool {
        let is_fast = now_us - began_us < FAST.as_micros() as u64;
        if !is_fast {
            self.slow_at_us.store(now_us, SeqCst);
        }
        is_fast
    }

    /// Records the start of a write or delete.
    pub fn write_begins(&self, account: usize, key: &Bytes, value: Option<Bytes>, knows: Knows) -> Writing {
        self.accounts[account].writes.fetch_add(1, SeqCst);
        let mut book = self.accounts[account].book.lock();
        let began_us = self.now_us();
        let Tale::Values(history) = &mut book.tale else {
            unreachable!("{} has counters", self.accounts[account].store.name)
        };
        let write = history.write_began(key, value, knows, began_us);
        // The coordinator may retry with a second replica without reporting it: the first one may apply the write late.
        history.write_tried_again(write);
        Writing {
            account,
            began_us,
            was_calm: self.is_calm(began_us),
            number: Number::Write(write),
        }
    }

    /// Records the start of an addition to a counter.
    pub fn add_begins(&self, account: usize, key: &Bytes, by: u32) -> Writing {
        self.accounts[account].writes.fetch_add(1, SeqCst);
        let mut book = self.accounts[account].book.lock();
        let began_us = self.now_us();
        let Tale::Sums(sums) = &mut book.tale else {
            unreachable!("{} has values", self.accounts[account].store.name)
        };
        Writing {
            account,
            began_us,
            was_calm: false,
            number: Number::Add(sums.add_began(key, by, began_us)),
        }
    }

    /// Records that the write was acknowledged.
    pub fn acknowledged(&self, writing: &Writing) {
        let account = &self.accounts[writing.account];
        let mut book = account.book.lock();
        let now_us = self.now_us();
        let is_fast = self.took(writing.began_us, now_us);
        match (&mut book.tale, &writing.number) {
            (Tale::Values(history), &Number::Write(number)) => {
                history.write_acknowledged(number, now_us);
                if is_fast && writing.was_calm && self.is_calm(now_us) {
                    account.once.fetch_add(1, SeqCst);
                    history.write_tried_once(number);
                }
            }
            (Tale::Sums(sums), &Number::Add(number)) => sums.add_acknowledged(number, now_us),
            _ => unreachable!("a write is of what the store keeps"),
        }
    }

    /// Records that the write was certainly not executed: it was never sent.
    pub fn undone(&self, writing: &Writing) {
        let mut book = self.accounts[writing.account].book.lock();
        if let (Tale::Values(history), &Number::Write(number)) = (&mut book.tale, &writing.number) {
            history.write_undone(number);
        }
    }

    /// Records that the outcome of the write is unknown: it may be executed now or later.
    pub fn left(&self, writing: &Writing) {
        self.took(writing.began_us, self.now_us());
    }

    /// Checks the answer to a read.
    pub fn read(&self, account: usize, key: &Bytes, seen: &Seen, began_us: u64) {
        let account = &self.accounts[account];
        account.reads.fetch_add(1, SeqCst);
        let now_us = self.now_us();
        self.took(began_us, now_us);
        let mut book = account.book.lock();
        let checked = match (&book.tale, seen) {
            (Tale::Values(history), Seen::All(values)) => history.read(key, values, began_us),
            (Tale::Values(history), Seen::Latest(value)) if account.store.promise.reads_see_writes => {
                history.resolved(key, value.as_ref(), began_us)
            }
            (Tale::Values(history), Seen::Latest(value)) => history.read(key, value.as_slice(), began_us),
            (Tale::Sums(sums), Seen::Total(total)) => sums.read(key, *total, began_us, now_us),
            _ => unreachable!("a read is of what the store keeps"),
        };
        book.note(checked, format!("a read that began at {began_us} us saw {seen:?}"));
    }

    /// Checks a final read: nothing fails any more, and all replicas are equal.
    pub fn settled(&self, account: usize, key: &Bytes, seen: &Seen) {
        let mut book = self.accounts[account].book.lock();
        let checked = match (&book.tale, seen) {
            (Tale::Values(history), Seen::All(values)) => history.settled(key, values),
            (Tale::Sums(sums), Seen::Total(total)) => sums.settled(key, *total),
            _ => unreachable!("in the end all values are asked for"),
        };
        book.note(checked, format!("in the end there is {seen:?}"));
    }

    /// Adds a line about a key, as text.
    pub fn say(&self, account: usize, key: &Bytes, words: String) {
        let now_us = self.now_us();
        let mut book = self.accounts[account].book.lock();
        let of_key = book.words.entry(key.clone()).or_default();
        of_key.push(format!("{now_us:>9} us: {words}"));
    }

    /// Whether a store broke a promise that it can keep.
    pub fn is_broken(&self) -> bool {
        let mut strong = self.accounts.iter().filter(|account| !account.store.is_weak);
        strong.any(|account| !account.broken().is_empty())
    }
}

impl Account {
    fn new(store: &'static Store) -> Self {
        let tale = match store.keeps {
            Keeps::Counters => Tale::Sums(Sums::new(store.promise)),
            Keeps::Latest | Keeps::All => Tale::Values(History::new(store.promise)),
        };
        let book = Book {
            tale,
            words: BTreeMap::new(),
            broken: Vec::new(),
        };
        Self {
            store,
            book: Mutex::new(book),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            once: AtomicU64::new(0),
        }
    }

    /// One of the current keys, or now and then an earlier one.
    pub fn key(&self, rng: &mut Rng) -> Bytes {
        let generation = self.writes.load(SeqCst) / WRITES_PER_GENERATION;
        let generation = match rng.u8(..8) {
            0 => rng.u64(..=generation),
            _ => generation,
        };
        Bytes::from(format!("{generation}-{}", rng.usize(..KEYS)))
    }

    /// Whether a key is one that is deleted unconditionally, which permits many outcomes.
    pub fn is_deleted(key: &Bytes) -> bool {
        key.ends_with(b"-0")
    }

    /// All keys that were written.
    pub fn keys(&self) -> Vec<Bytes> {
        match &self.book.lock().tale {
            Tale::Values(history) => history.keys().cloned().collect(),
            Tale::Sums(sums) => sums.keys().cloned().collect(),
        }
    }

    /// The broken promises.
    pub fn broken(&self) -> Vec<String> {
        self.book.lock().broken.clone()
    }

    /// The number of acknowledged writes.
    pub fn acknowledged(&self) -> usize {
        match &self.book.lock().tale {
            Tale::Values(history) => history.acknowledged(),
            Tale::Sums(sums) => sums.acknowledged(),
        }
    }

    /// The number of checked reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }

    /// A summary as text.
    pub fn summary(&self) -> String {
        format!(
            "{:>8}: {} writes begun, {} acknowledged, {} of them done once; {} reads compared, {} breaches",
            self.store.name,
            self.writes.load(SeqCst),
            self.acknowledged(),
            self.once.load(SeqCst),
            self.reads(),
            self.broken().len()
        )
    }
}

impl Book {
    fn note(&mut self, checked: Result<(), Broken>, seen: String) {
        let Err(broken) = checked else { return };
        if self.broken.len() >= BROKEN_MAX {
            return;
        }
        let words = self.words.get(&broken.key).map_or(&[][..], Vec::as_slice);
        let told = words[words.len().saturating_sub(WORDS_TOLD)..].join("\n  ");
        self.broken.push(format!("{broken}\n  {told}\n  {seen}"));
    }
}
