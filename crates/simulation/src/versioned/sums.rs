//! Increments of counters, and the possible totals: at least the acknowledged increments, at most all that were begun.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::history::{Broken, Promise, broken};

/// An increment of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddNumber(usize);

/// The increments of the counters of a store; they are never negative.
#[derive(Debug)]
pub struct Sums {
    promise: Promise,
    adds: Vec<Add>,
    by_key: BTreeMap<Bytes, Vec<usize>>,
}

#[derive(Debug)]
struct Add {
    by: u32,
    began: u64,
    acknowledged: Option<u64>,
}

impl Sums {
    /// An empty history.
    pub fn new(promise: Promise) -> Self {
        Self {
            promise,
            adds: Vec::new(),
            by_key: BTreeMap::new(),
        }
    }

    /// A client begins to add.
    pub fn add_began(&mut self, key: &Bytes, by: u32, now: u64) -> AddNumber {
        let number = self.adds.len();
        self.adds.push(Add {
            by,
            began: now,
            acknowledged: None,
        });
        self.by_key.entry(key.clone()).or_default().push(number);
        AddNumber(number)
    }

    /// The increment was acknowledged. One that failed may have been applied once.
    pub fn add_acknowledged(&mut self, add: AddNumber, now: u64) {
        self.adds[add.0].acknowledged = Some(now);
    }

    /// How many increments were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.adds.iter().filter(|add| add.acknowledged.is_some()).count()
    }

    /// All counters with increments.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.by_key.keys()
    }

    /// Checks the result of a read.
    ///
    /// # Errors
    /// The total is impossible.
    pub fn read(&self, key: &Bytes, total: i64, began: u64, now: u64) -> Result<(), Broken> {
        let least = match self.promise.reads_see_writes && self.promise.writes_stay {
            true => self.total(key, |add| add.acknowledged.is_some_and(|at| at <= began)),
            false => 0,
        };
        self.check(key, total, least, self.total(key, |add| add.began <= now))
    }

    /// Checks the final total, after everything has settled and all replicas are equal.
    ///
    /// # Errors
    /// The total is impossible.
    pub fn settled(&self, key: &Bytes, total: i64) -> Result<(), Broken> {
        let least = match self.promise.writes_stay {
            true => self.total(key, |add| add.acknowledged.is_some()),
            false => 0,
        };
        self.check(key, total, least, self.total(key, |_| true))
    }

    fn total(&self, key: &Bytes, which: impl Fn(&Add) -> bool) -> i64 {
        let numbers = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let adds = numbers.iter().map(|&number| &self.adds[number]);
        adds.filter(|add| which(add)).map(|add| i64::from(add.by)).sum()
    }

    fn check(&self, key: &Bytes, total: i64, least: i64, most: i64) -> Result<(), Broken> {
        if (least..=most).contains(&total) {
            return Ok(());
        }
        let what =
            format!("the counter is {total}, but at least {least} was acknowledged, and at most {most} was added");
        Err(broken(key, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_between_acknowledged_and_begun_increments() {
        let mut sums = Sums::new(Promise {
            reads_see_writes: true,
            writes_stay: true,
        });
        let key = Bytes::from_static(b"k");
        let first = sums.add_began(&key, 2, 1);
        sums.read(&key, 0, 1, 2).unwrap();
        sums.add_acknowledged(first, 2);
        sums.add_began(&key, 3, 3);
        for (total, may_be) in [(0, false), (2, true), (5, true), (7, false)] {
            assert_eq!(sums.read(&key, total, 4, 5).is_ok(), may_be, "{total}");
            assert_eq!(sums.settled(&key, total).is_ok(), may_be, "{total}");
        }
    }
}
