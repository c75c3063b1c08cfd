//! The operations of clients of a versioned store, and checks whether their results are consistent.
//!
//! Stores are not linearizable and do not claim to be: a failed write may appear, now or later, and several writes may
//! be concurrent. So checkers of linearizability do not fit. The weaker guarantees of stores are checked for each read
//! separately, from the values alone, without the vector clocks that the store returns:
//!
//! - *nothing gets lost*: a read returns every write that was acknowledged before the read began, or another write that
//!   may have replaced it. A write may replace another one if it had read its value, or if it overwrites everything and
//!   was not finished when the other one began. Replacements may form a chain;
//! - *nothing comes back*: a read returns no value that was replaced by a write which was acknowledged before the read
//!   began. A write that was sent to several replicas may remain beside its replacement, since each replica may have
//!   applied it; but if the store resolves by the latest write, it is not returned;
//! - *nothing comes from nowhere*: every value was written by a client.
//!
//! Every value must be written only once, so that it identifies its write. All times are from one clock that is never
//! set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

/// The guarantees of a store, given its settings and faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// A read sees all writes acknowledged before it: R + W > N, and hints do not count.
    pub reads_see_writes: bool,
    /// Acknowledged writes survive all faults of the run.
    pub writes_stay: bool,
}

/// A write of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteNumber(usize);

/// The values that a write replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knows {
    /// All present values.
    All,
    /// These values, which were read, and everything that they have replaced.
    Read(Vec<Bytes>),
}

/// A broken guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The key.
    pub key: Bytes,
    /// A description.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {:?}: {}", self.key, self.what)
    }
}

impl std::error::Error for Broken {}

/// The operations on the keys of a store.
#[derive(Debug)]
pub struct History {
    promise: Promise,
    keys: BTreeMap<Bytes, Vec<usize>>,
    writes: Vec<Write>,
}

#[derive(Debug)]
struct Write {
    /// `None` for a deletion.
    value: Option<Bytes>,
    /// Whether it may replace everything that is there.
    over_all: bool,
    /// Further values that it may have replaced.
    may_know: BTreeSet<Bytes>,
    /// The values that it has replaced if it was acknowledged.
    knows: BTreeSet<Bytes>,
    began: u64,
    /// When it was acknowledged; `None` while its outcome is unknown: then it may be applied at any time.
    acknowledged: Option<u64>,
    /// Whether several replicas may have applied it separately.
    is_several: bool,
    /// It was certainly not applied.
    is_undone: bool,
}

impl History {
    /// An empty history.
    pub fn new(promise: Promise) -> Self {
        Self {
            promise,
            keys: BTreeMap::new(),
            writes: Vec::new(),
        }
    }

    /// A client begins to write a value, or to delete a key.
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

    /// The write has read the key again, and now replaces these values.
    pub fn write_read(&mut self, write: WriteNumber, values: Vec<Bytes>) {
        let write = &mut self.writes[write.0];
        write.may_know.extend(values.iter().cloned());
        write.knows = values.into_iter().collect();
    }

    /// The write was sent to another replica, because it was unclear whether the first one had applied it; the first
    /// one may still do so later. Then the write is there twice.
    pub fn write_tried_again(&mut self, write: WriteNumber) {
        self.writes[write.0].is_several = true;
    }

    /// The write was sent to one replica, and no other has applied it, although that was
    /// [possible](Self::write_tried_again).
    pub fn write_tried_once(&mut self, write: WriteNumber) {
        self.writes[write.0].is_several = false;
    }

    /// The write was acknowledged. A failed write may still be applied at any time: nothing is recorded for it.
    pub fn write_acknowledged(&mut self, write: WriteNumber, now: u64) {
        self.writes[write.0].acknowledged = Some(now);
    }

    /// The write was certainly not applied, and never will be.
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

    /// A read has returned all concurrent values.
    ///
    /// # Errors
    /// The read cannot have seen these values.
    pub fn read(&self, key: &Bytes, values: &[Bytes], began: u64) -> Result<(), Broken> {
        self.nothing_from_nowhere(key, values)?;
        if self.promise.reads_see_writes && self.promise.writes_stay {
            self.nothing_lost(key, values, began)?;
            self.nothing_back(key, values, began)?;
        }
        Ok(())
    }

    /// After everything has settled and all replicas are equal: the final values.
    ///
    /// # Errors
    /// These final values are impossible.
    pub fn settled(&self, key: &Bytes, values: &[Bytes]) -> Result<(), Broken> {
        self.nothing_from_nowhere(key, values)?;
        if self.promise.writes_stay {
            self.nothing_lost(key, values, u64::MAX)?;
            self.nothing_back(key, values, u64::MAX)?;
        }
        Ok(())
    }

    /// A read that began at this time resolved all siblings to the latest: to this value, or to none.
    ///
    /// # Errors
    /// A write that was acknowledged before the read began had replaced the value.
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
                let what = format!("{value:?} was returned as the latest, but acknowledged writes had replaced it");
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
                return Err(broken(key, format!("{value:?} is there, but no client wrote it")));
            }
        }
        Ok(())
    }

    fn nothing_lost(&self, key: &Bytes, values: &[Bytes], began: u64) -> Result<(), Broken> {
        let writes: Vec<&Write> = self.of(key).filter(|write| !write.is_undone).collect();
        // Deletions are invisible and may be forgotten: a deletion that is possible counts as present.
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
                    "{:?} was acknowledged, but is lost: none of the present values {values:?} can have replaced it",
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
                    "{:?} is back, although {:?} was acknowledged and had replaced it",
                    old.value, later.value
                );
                return Err(broken(key, what));
            }
        }
        Ok(())
    }
}

impl Write {
    /// Whether it may have replaced another write.
    fn may_replace(&self, other: &Self) -> bool {
        let may_know = other.value.as_ref().is_some_and(|value| self.may_know.contains(value));
        let is_after = self.acknowledged.is_none_or(|at| at >= other.began);
        may_know || (self.over_all && is_after && !std::ptr::eq(self, other))
    }

    /// Whether it must have replaced another write, if it was acknowledged.
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
    fn a_read_may_see_an_acknowledged_write_or_its_replacement() {
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
    fn a_replaced_value_may_not_come_back() {
        let mut history = History::new(PROMISE);
        written(&mut history, "a", Knows::All, 1, 2);
        written(&mut history, "b", Knows::All, 3, 4);
        history.read(&text("k"), &[text("b")], 5).unwrap();
        history.read(&text("k"), &[text("a"), text("b")], 5).unwrap_err();
        history.read(&text("k"), &[text("a"), text("b")], 3).unwrap();
        history.read(&text("k"), &[text("a")], 5).unwrap_err();
    }

    #[test]
    fn two_writes_with_the_same_context_must_both_be_there() {
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
    fn a_deletion_explains_a_missing_value_unless_it_came_before() {
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
    fn a_duplicated_write_may_remain_but_is_not_the_latest() {
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
    fn a_missing_key_needs_a_deletion_that_was_not_replaced() {
        let mut history = History::new(PROMISE);
        history.resolved(&text("k"), None, 0).unwrap();
        let deletion = history.write_began(&text("k"), None, Knows::All, 1);
        history.write_acknowledged(deletion, 2);
        history.resolved(&text("k"), None, 3).unwrap();
        written(&mut history, "a", Knows::All, 4, 5);
        history.resolved(&text("k"), None, 4).unwrap();
        history.resolved(&text("k"), None, 6).unwrap_err();
        // A deletion that may still be applied explains the missing key.
        history.write_began(&text("k"), None, Knows::All, 7);
        history.resolved(&text("k"), None, 8).unwrap();
    }

    #[test]
    fn the_final_state_is_checked_even_without_guarantees_for_reads() {
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
