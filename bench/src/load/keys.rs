//! The key distributions of a load.

use std::fmt;
use std::sync::Arc;

use crate::dataset::Random;

/// A distribution of keys.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyChoice {
    /// All of `0..records`, equally often.
    Uniform { records: u64 },
    /// These few, spread evenly over `0..records`.
    Hot { records: u64, count: u64 },
    /// All of `0..records`; the n-th key has a frequency proportional to n to the power of -0.99.
    Zipf { records: u64 },
    /// These records, equally often.
    Among(Records),
}

/// A non-empty set of record numbers.
#[derive(Clone, PartialEq)]
pub struct Records(Arc<[u32]>);

impl Records {
    /// These records; `None` without records.
    pub fn new(numbers: Vec<u32>) -> Option<Self> {
        (!numbers.is_empty()).then(|| Self(numbers.into()))
    }

    /// The number of records.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.count())
    }
}

/// An endless sequence of record numbers.
#[derive(Debug, Clone)]
pub struct Keys {
    choice: KeyChoice,
    random: Random,
    zipf: Option<Zipf>,
}

/// The constants of the generator of Gray et al., "Quickly generating billion-record synthetic
/// databases", as in YCSB.
#[derive(Debug, Clone)]
struct Zipf {
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Keys {
    /// A sequence with this distribution.
    pub fn new(choice: KeyChoice, seed: u64) -> Self {
        let zipf = match &choice {
            &KeyChoice::Zipf { records } => Some(Zipf::new(records)),
            KeyChoice::Uniform { .. } | KeyChoice::Hot { .. } | KeyChoice::Among(_) => None,
        };
        Self {
            choice,
            random: Random::new(seed),
            zipf,
        }
    }

    /// Another sequence of the same distribution, without computing its constants again.
    pub fn reseeded(&self, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            ..self.clone()
        }
    }

    /// True with this probability.
    #[inline]
    pub fn chance(&mut self, share: f64) -> bool {
        self.random.fraction() < share
    }

    /// The next record.
    #[inline]
    pub fn next(&mut self) -> u64 {
        match &self.choice {
            &KeyChoice::Uniform { records } => self.random.below(records),
            &KeyChoice::Hot { records, count } => self.random.below(count) * (records / count).max(1) % records,
            &KeyChoice::Zipf { records } => {
                let fraction = self.random.fraction();
                let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.rank(records, fraction));
                // Keys of neighbouring ranks are not neighbours in the files.
                Random::new(rank).below(records)
            }
            KeyChoice::Among(records) => {
                let place = self.random.below(records.0.len() as u64);
                u64::from(records.0[place as usize])
            }
        }
    }
}

impl Zipf {
    fn new(records: u64) -> Self {
        let zeta_of = |count: u64| (1..=count).map(|n| (n as f64).powf(-THETA)).sum::<f64>();
        let zeta = zeta_of(records);
        Self {
            zeta,
            alpha: 1.0 / (1.0 - THETA),
            eta: (1.0 - (2.0 / records as f64).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta),
        }
    }

    fn rank(&self, records: u64, fraction: f64) -> u64 {
        let scaled = fraction * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = records as f64 * (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(records - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn all_keys_exist() {
        for choice in [
            KeyChoice::Uniform { records: 1000 },
            KeyChoice::Hot {
                records: 1000,
                count: 7,
            },
            KeyChoice::Hot { records: 5, count: 100 },
            KeyChoice::Zipf { records: 1000 },
            KeyChoice::Among(Records::new(vec![7, 999]).unwrap()),
        ] {
            let mut keys = Keys::new(choice.clone(), 1);
            let limit = if matches!(choice, KeyChoice::Hot { records: 5, .. }) {
                5
            } else {
                1000
            };
            assert!((0..10_000).all(|_| keys.next() < limit), "{choice:?}");
        }
    }

    #[test]
    fn a_few_zipf_keys_get_most_requests() {
        let mut keys = Keys::new(KeyChoice::Zipf { records: 100_000 }, 1);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        (0..100_000).for_each(|_| *counts.entry(keys.next()).or_default() += 1);
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert!(counts.iter().take(100).sum::<u32>() > 30_000);
    }
}
