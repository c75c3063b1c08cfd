//! What clients of a versioned store did and saw, and whether that can have been.
//!
//! Stores are not linearizable, and do not say so: a write that failed may appear, now and later, and several
//! writes may stand side by side. So no checker of linearizability fits. What is promised is less, and is
//! checked for each read by itself, from values alone, without a look at the clocks that the store gives out:
//!
//! - *nothing gets lost*: a write that was acknowledged before the read began is there, or there is another one
//!   that may have taken its place: one over all that was not through when it began, or one that had read it;
//!   or one that may have taken the place of that one, and so on;
//! - *nothing comes back*: what is there was not known to a write that was acknowledged before the read began. One
//!   that was given to several replicas may stand beside that, since each may have taken it, but where the store
//!   resolves by the latest, that one is not shown;
//! - *nothing comes from nowhere*: a client wrote it.
//!
//! Every value is to be written once only, so that it tells its write. Times are of any one clock that is never
//! set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

/// What a store promises, by its settings and by what may happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// A read sees all writes that were acknowledged before it: R + W > N, and hints do not count.
    pub reads_see_writes: bool,
    /// What was acknowledged survives what happens.
    pub writes_stay: bool,
}

/// A write of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteNumber(usize);

/// What a write takes the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knows {
    /// Of all that is there.
    All,
    /// Of these values, which were read, and of what these have taken the place of.
    Read(Vec<Bytes>),
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Of which key.
    pub key: Bytes,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:?}: {}", self.key, self.what)
    }
}

impl std::error::Error for Broken {}

/// What was done to the keys of a store.
#[derive(Debug)]
pub struct History {
    promise: Promise,
    keys: BTreeMap<Bytes, Vec<usize>>,
    writes: Vec<Write>,
}

#[derive(Debug)]
struct Write {
    /// None for a deletion.
    value: Option<Bytes>,
    /// Whether it may make obsolete all that is there.
    over_all: bool,
    /// What it may have made obsolete besides.
    may_know: BTreeSet<Bytes>,
    /// What it has made obsolete if it was acknowledged.
    knows: BTreeSet<Bytes>,
    began: u64,
    /// When it was acknowledged; none as long as it is not known whether it was done: then it may be at any time.
    acknowledged: Option<u64>,
    /// Whether several replicas may have taken it, each for itself.
    is_several: bool,
    /// It certainly was not done.
    is_undone: bool,
}

impl History {
    /// Nothing has happened yet.
    pub fn new(promise: Promise) -> Self {
        Self {
            promise,
            keys: BTreeMap::new(),
            writes: Vec::new(),
        }
    }

    /// A client begins to write a value, or to delete what is there.
    pub fn write_began(&mut self, key: &Bytes, value: Option<Bytes>, knows: Knows, now: u64) -> WriteNumber {
        let (over_all, read) = match knows {
            Knows::All => (true, BTreeSet::new()),
            Knows::Read(values) => (false, values.into_iter().collect()),
        };
        let number = self.writes.len();
        self.writes.push(Write {
            value,
            over_all,
            may_know: read.clone(),
            knows: read,
            began: now,
            acknowledged: None,
            is_several: false,
            is_undone: false,
        });
        self.keys.entry(key.clone()).or_default().push(number);
        WriteNumber(number)
    }

    /// The write has read, and is now over these values instead.
    pub fn write_read(&mut self, write: WriteNumber, values: Vec<Bytes>) {
        let write = &mut self.writes[write.0];
        write.may_know.extend(values.iter().cloned());
        write.knows = values.into_iter().collect();
    }

    /// The write was given to another replica, since it was not clear whether the first had taken it: that one may
    /// do so late. Then it is there twice.
    pub fn write_tried_again(&mut self, write: WriteNumber) {
        self.writes[write.0].is_several = true;
    }

    /// The write was given to one replica, and no other took it for itself, although that was
    /// [feared](Self::write_tried_again).
    pub fn write_tried_once(&mut self, write: WriteNumber) {
        self.writes[write.0].is_several = false;
    }

    /// The write was acknowledged. One that fails may be done nevertheless, at any time: of that nothing is told.
    pub fn write_acknowledged(&mut self, write: WriteNumber, now: u64) {
        self.writes[write.0].acknowledged = Some(now);
    }

    /// The write certainly was not done, and never will be.
    pub fn write_undone(&mut self, write: WriteNumber) {
        self.writes[write.0].is_undone = true;
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.writes.iter().filter(|write| write.acknowledged.is_some()).count()
    }

    /// All keys that were written.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.keys()
    }

    /// A read is answered: with all values that stand side by side.
    ///
    /// # Errors
    /// It cannot have seen that.
    pub fn read(&self, key: &Bytes, values: &[Bytes], began: u64) -> Result<(), Broken> {
        self.nothing_from_nowhere(key, values)?;
        if self.promise.reads_see_writes && self.promise.writes_stay {
            self.nothing_lost(key, values, began)?;
            self.nothing_back(key, values, began)?;
        }
        Ok(())
    }

    /// All is quiet, and all replicas are equal: this is what is there.
    ///
    /// # Errors
    /// It cannot be.
    pub fn settled(&self, key: &Bytes, values: &[Bytes]) -> Result<(), Broken> {
        self.nothing_from_nowhere(key, values)?;
        if self.promise.writes_stay {
            self.nothing_lost(key, values, u64::MAX)?;
            self.nothing_back(key, values, u64::MAX)?;
        }
        Ok(())
    }

    /// All siblings were resolved by the latest, for a read that began then: to this value, or to none.
    ///
    /// # Errors
    /// One that was acknowledged before the read began had taken its place.
    pub fn resolved(&self, key: &Bytes, value: Option<&Bytes>, began: u64) -> Result<(), Broken> {
        let acknowledged = |write: &&Write| write.acknowledged.is_some_and(|at| at <= began);
        if !self.promise.writes_stay || (value.is_none() && !self.of(key).any(|write| acknowledged(&write))) {
            return Ok(());
        }
        let may_be_it = |write: &&Write| write.value.as_ref() == value && !write.is_undone;
        let is_replaced = |write: &Write| {
            let mut later = self.of(key).filter(acknowledged);
            later.any(|later| later.replaces(write, self.promise))
        };
        match self.of(key).filter(may_be_it).all(is_replaced) {
            true => {
                let what = format!("{value:?} is the latest, and others were acknowledged that had taken its place");
                Err(broken(key, what))
            }
            false => Ok(()),
        }
    }

    fn of(&self, key: &Bytes) -> impl Iterator<Item = &Write> + Clone {
        let numbers = self.keys.get(key).map_or(&[][..], Vec::as_slice);
        numbers.iter().map(|&number| &self.writes[number])
    }

    fn nothing_from_nowhere(&self, key: &Bytes, values: &[Bytes]) -> Result<(), Broken> {
        for value in values {
            if !self.of(key).any(|write| write.value.as_ref() == Some(value)) {
                return Err(broken(key, format!("{value:?} is there, and nobody wrote it")));
            }
        }
        Ok(())
    }

    fn nothing_lost(&self, key: &Bytes, values: &[Bytes], began: u64) -> Result<(), Broken> {
        let writes: Vec<&Write> = self.of(key).filter(|write| !write.is_undone).collect();
        // Deletions are not seen, and may be forgotten: where one can be, it is taken to be there.
        let is_there = |write: &Write| write.value.as_ref().is_none_or(|value| values.contains(value));
        let mut is_accounted: Vec<bool> = writes.iter().map(|write| is_there(write)).collect();
        let mut reached: Vec<usize> = (0..writes.len()).filter(|&at| is_accounted[at]).collect();
        while let Some(later) = reached.pop() {
            for (at, earlier) in writes.iter().enumerate() {
                if !is_accounted[at] && writes[later].may_replace(earlier) {
                    is_accounted[at] = true;
                    reached.push(at);
                }
            }
        }
        for (write, is_accounted) in writes.iter().zip(is_accounted) {
            if !is_accounted && write.acknowledged.is_some_and(|at| at <= began) {
                let what = format!(
                    "{:?} was acknowledged, and is lost: there is {values:?}, and none of it can have taken its place",
                    write.value
                );
                return Err(broken(key, what));
            }
        }
        Ok(())
    }

    fn nothing_back(&self, key: &Bytes, values: &[Bytes], began: u64) -> Result<(), Broken> {
        let is_old = |write: &&Write| write.value.as_ref().is_some_and(|value| values.contains(value));
        for old in self.of(key).filter(is_old).filter(|write| !write.is_several) {
            let acknowledged = |write: &&Write| write.acknowledged.is_some_and(|at| at <= began);
            let mut later = self.of(key).filter(acknowledged);
            let replaces = |write: &&Write| write.replaces(old, self.promise);
            if let Some(later) = later.find(replaces) {
                let what = format!(
                    "{:?} is back: {:?} was acknowledged, and had taken its place",
                    old.value, later.value
                );
                return Err(broken(key, what));
            }
        }
        Ok(())
    }
}

impl Write {
    /// Whether it can have made another write obsolete.
    fn may_replace(&self, other: &Self) -> bool {
        let may_know = other.value.as_ref().is_some_and(|value| self.may_know.contains(value));
        let is_after = self.acknowledged.is_none_or(|at| at >= other.began);
        may_know || (self.over_all && is_after && !std::ptr::eq(self, other))
    }

    /// Whether it must have made another write obsolete, if it was acknowledged.
    fn replaces(&self, other: &Self, promise: Promise) -> bool {
        let knows = other.value.as_ref().is_some_and(|value| self.knows.contains(value));
        let is_after = other.acknowledged.is_some_and(|at| at < self.began);
        knows || (self.over_all && promise.reads_see_writes && is_after)
    }
}

pub(super) fn broken(key: &Bytes, what: String) -> Broken {
    Broken { key: key.clone(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise {
        reads_see_writes: true,
        writes_stay: true,
    };

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn written(history: &mut History, value: &'static str, knows: Knows, began: u64, ended: u64) {
        let write = history.write_began(&text("k"), Some(text(value)), knows, began);
        history.write_acknowledged(write, ended);
    }

    #[test]
    fn a_read_may_see_what_was_acknowledged_or_what_was_written_over_it() {
        let mut history = History::new(PROMISE);
        written(&mut history, "a", Knows::All, 1, 2);
        history.read(&text("k"), &[text("a")], 3).unwrap();
        history.read(&text("k"), &[], 3).unwrap_err();
        history.write_began(&text("k"), Some(text("b")), Knows::All, 4);
        history.read(&text("k"), &[text("a")], 5).unwrap();
        history.read(&text("k"), &[text("b")], 5).unwrap();
        history.read(&text("k"), &[], 5).unwrap_err();
    }

    #[test]
    fn what_was_written_over_may_not_come_back() {
        let mut history = History::new(PROMISE);
        written(&mut history, "a", Knows::All, 1, 2);
        written(&mut history, "b", Knows::All, 3, 4);
        history.read(&text("k"), &[text("b")], 5).unwrap();
        history.read(&text("k"), &[text("a"), text("b")], 5).unwrap_err();
        history.read(&text("k"), &[text("a"), text("b")], 3).unwrap();
        history.read(&text("k"), &[text("a")], 5).unwrap_err();
    }

    #[test]
    fn of_two_writes_over_one_context_both_must_be_there() {
        let mut history = History::new(PROMISE);
        written(&mut history, "a", Knows::All, 1, 2);
        written(&mut history, "b", Knows::Read(vec![text("a")]), 3, 5);
        written(&mut history, "c", Knows::Read(vec![text("a")]), 4, 6);
        history.read(&text("k"), &[text("b"), text("c")], 7).unwrap();
        history.read(&text("k"), &[text("c")], 7).unwrap_err();
        written(&mut history, "d", Knows::Read(vec![text("b"), text("c")]), 8, 9);
        history.read(&text("k"), &[text("d")], 10).unwrap();
        history.read(&text("k"), &[text("c"), text("d")], 10).unwrap_err();
    }

    #[test]
    fn a_deletion_may_be_what_is_there_and_not_if_it_came_before() {
        let mut history = History::new(PROMISE);
        let deletion = history.write_began(&text("k"), None, Knows::All, 1);
        history.write_acknowledged(deletion, 2);
        written(&mut history, "a", Knows::All, 3, 4);
        history.read(&text("k"), &[], 5).unwrap_err();
        let deletion = history.write_began(&text("k"), None, Knows::Read(vec![text("a")]), 6);
        history.read(&text("k"), &[], 7).unwrap();
        history.write_acknowledged(deletion, 8);
        history.read(&text("k"), &[text("a")], 9).unwrap_err();
    }

    #[test]
    fn a_write_that_is_there_twice_may_stand_beside_what_took_its_place_and_is_not_the_latest() {
        let mut history = History::new(PROMISE);
        let write = history.write_began(&text("k"), Some(text("a")), Knows::All, 1);
        history.write_tried_again(write);
        history.write_acknowledged(write, 2);
        written(&mut history, "b", Knows::All, 3, 4);
        history.read(&text("k"), &[text("a"), text("b")], 5).unwrap();
        history.read(&text("k"), &[text("a")], 5).unwrap_err();
        history.resolved(&text("k"), Some(&text("b")), 5).unwrap();
        history.resolved(&text("k"), Some(&text("a")), 5).unwrap_err();
        history.resolved(&text("k"), Some(&text("a")), 3).unwrap();
    }

    #[test]
    fn that_a_key_is_not_there_is_due_to_a_deletion_that_nothing_has_taken_the_place_of() {
        let mut history = History::new(PROMISE);
        history.resolved(&text("k"), None, 0).unwrap();
        let deletion = history.write_began(&text("k"), None, Knows::All, 1);
        history.write_acknowledged(deletion, 2);
        history.resolved(&text("k"), None, 3).unwrap();
        written(&mut history, "a", Knows::All, 4, 5);
        history.resolved(&text("k"), None, 4).unwrap();
        history.resolved(&text("k"), None, 6).unwrap_err();
        // One that may be made yet is no wonder.
        history.write_began(&text("k"), None, Knows::All, 7);
        history.resolved(&text("k"), None, 8).unwrap();
    }

    #[test]
    fn where_nothing_is_promised_of_reads_the_end_is_checked_all_the_same() {
        let mut history = History::new(Promise {
            reads_see_writes: false,
            writes_stay: true,
        });
        written(&mut history, "a", Knows::All, 1, 2);
        history.read(&text("k"), &[], 3).unwrap();
        history.read(&text("k"), &[text("z")], 3).unwrap_err();
        history.settled(&text("k"), &[]).unwrap_err();
        history.settled(&text("k"), &[text("a")]).unwrap();
    }
}
