//! What clients of all stores did and saw: written down while they do it, and held to what is promised at once.
//!
//! Times are of one clock that is never set. A write begins before anything is sent, and is acknowledged after the
//! answer has come; a read begins before it is sent. So what is taken for earlier was earlier.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use fondaco_simulation::versioned::{AddNumber, Broken, History, Knows, Sums, WriteNumber};
use parking_lot::Mutex;

use super::stores::{Keeps, Store};

/// How many keys of a store are written at a time.
const KEYS: usize = 6;
/// After how many writes it is the turn of other keys: what is known of one is gone through at each read of it.
const WRITES_PER_GENERATION: u64 = 360;
/// An answer that takes longer may have come from another replica than the one that was asked first.
const FAST: Duration = Duration::from_millis(100);
/// How long after the last trouble, and the last slow answer, everything is taken to go its usual way.
const CALM_AFTER: Duration = Duration::from_millis(1200);
/// How much of what happened to a key is told when something is wrong with it.
const WORDS_TOLD: usize = 60;
/// How many breaches of a store are written down.
const BROKEN_MAX: usize = 3;

/// The accounts of all stores.
pub struct Ledger {
    began: Instant,
    accounts: Vec<Account>,
    /// When the last trouble ended, in microseconds; the end of time while there is one.
    troubled_until_us: AtomicU64,
    /// When the last slow answer came.
    slow_at_us: AtomicU64,
}

/// What was done with a store.
pub struct Account {
    pub store: &'static Store,
    book: Mutex<Book>,
    /// How many writes were begun.
    writes: AtomicU64,
    /// How many answers to reads were compared with what can be.
    reads: AtomicU64,
    /// How many writes were certainly done once only.
    once: AtomicU64,
}

struct Book {
    tale: Tale,
    /// What happened to each key, for people.
    words: BTreeMap<Bytes, Vec<String>>,
    broken: Vec<String>,
}

enum Tale {
    Values(History),
    Sums(Sums),
}

/// A write under way.
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

/// What a read saw.
#[derive(Debug)]
pub enum Seen {
    /// All values that stand side by side.
    All(Vec<Bytes>),
    /// The latest of them.
    Latest(Option<Bytes>),
    /// What a counter comes to.
    Total(i64),
}

impl Ledger {
    /// Nothing has happened yet.
    pub fn new(stores: &'static [Store]) -> Self {
        Self {
            began: Instant::now(),
            accounts: stores.iter().map(Account::new).collect(),
            troubled_until_us: AtomicU64::new(0),
            slow_at_us: AtomicU64::new(0),
        }
    }

    /// The accounts of all stores, in their order.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// The time since it was begun, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Something breaks.
    pub fn trouble_begins(&self) {
        self.troubled_until_us.store(u64::MAX, SeqCst);
    }

    /// Nothing is broken any more.
    pub fn trouble_ends(&self) {
        self.troubled_until_us.store(self.now_us(), SeqCst);
    }

    fn is_calm(&self, now_us: u64) -> bool {
        let since = |moment: &AtomicU64| moment.load(SeqCst).saturating_add(CALM_AFTER.as_micros() as u64);
        since(&self.troubled_until_us) <= now_us && since(&self.slow_at_us) <= now_us
    }

    /// Notes how long an answer took. Returns whether it was fast.
    fn took(&self, began_us: u64, now_us: u64) -> bool {
        let is_fast = now_us - began_us < FAST.as_micros() as u64;
        if !is_fast {
            self.slow_at_us.store(now_us, SeqCst);
        }
        is_fast
    }

    /// Somebody begins to write a value, or to delete.
    pub fn write_begins(&self, account: usize, key: &Bytes, value: Option<Bytes>, knows: Knows) -> Writing {
        self.accounts[account].writes.fetch_add(1, SeqCst);
        let mut book = self.accounts[account].book.lock();
        let began_us = self.now_us();
        let Tale::Values(history) = &mut book.tale else {
            unreachable!("{} has counters", self.accounts[account].store.name)
        };
        let write = history.write_began(key, value, knows, began_us);
        // Whoever coordinates it may have a second replica take it, and does not tell: the first may do so late.
        history.write_tried_again(write);
        Writing {
            account,
            began_us,
            was_calm: self.is_calm(began_us),
            number: Number::Write(write),
        }
    }

    /// Somebody begins to add to a counter.
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

    /// The write was acknowledged.
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

    /// The write was certainly not done: nobody was told of it.
    pub fn undone(&self, writing: &Writing) {
        let mut book = self.accounts[writing.account].book.lock();
        if let (Tale::Values(history), &Number::Write(number)) = (&mut book.tale, &writing.number) {
            history.write_undone(number);
        }
    }

    /// Nobody knows what became of the write: it may be done, now or later.
    pub fn left(&self, writing: &Writing) {
        self.took(writing.began_us, self.now_us());
    }

    /// A read is answered.
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

    /// All is quiet, and all replicas are equal: this is what is there.
    pub fn settled(&self, account: usize, key: &Bytes, seen: &Seen) {
        let mut book = self.accounts[account].book.lock();
        let checked = match (&book.tale, seen) {
            (Tale::Values(history), Seen::All(values)) => history.settled(key, values),
            (Tale::Sums(sums), Seen::Total(total)) => sums.settled(key, *total),
            _ => unreachable!("in the end all values are asked for"),
        };
        book.note(checked, format!("in the end there is {seen:?}"));
    }

    /// Notes what happened to a key, for people.
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

    /// A key whose turn it is, or now and then one that had its turn.
    pub fn key(&self, rng: &mut Rng) -> Bytes {
        let generation = self.writes.load(SeqCst) / WRITES_PER_GENERATION;
        let generation = match rng.u8(..8) {
            0 => rng.u64(..=generation),
            _ => generation,
        };
        Bytes::from(format!("{generation}-{}", rng.usize(..KEYS)))
    }

    /// Whether a key is one that is deleted whatever there is: what excuses much.
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

    /// Which promises it broke.
    pub fn broken(&self) -> Vec<String> {
        self.book.lock().broken.clone()
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        match &self.book.lock().tale {
            Tale::Values(history) => history.acknowledged(),
            Tale::Sums(sums) => sums.acknowledged(),
        }
    }

    /// How many reads were compared with what can be.
    pub fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }

    /// What was done, in words.
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
