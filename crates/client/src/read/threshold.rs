//! The threshold for hedging, learned from latencies.
//!
//! There is one quantile for each size class (by powers of four of the number of keys), because a thousand keys take
//! longer than one. It is estimated in steps: up a little when a sample is above it, down a little when it is below,
//! in the proportion that leaves the wanted share above. This needs one number per class, and follows changes. Unlike
//! a histogram, it only needs to know *whether* an answer took longer: a request that is unanswered at the threshold
//! is a complete sample.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Classes: 1, up to 4, 16, 64, 256, and more keys.
const CLASSES: usize = 6;
/// The number of samples before the threshold is used.
const SAMPLES_MIN: u32 = 64;
/// The relative size of a step, once there are many samples.
const GAIN: f64 = 0.05;
/// Faster answers are not worth a second request, which costs as much.
const THRESHOLD_MIN_US: u64 = 100;
const QUANTILE_MAX_NS: f64 = 60e9;

/// When to ask a second node.
#[derive(Debug)]
pub struct Thresholds {
    quantile: f64,
    margin: f64,
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    quantile_ns: AtomicU64,
    samples: AtomicU32,
}

impl Thresholds {
    /// Thresholds at `margin` times this quantile (0 to 1) of the samples.
    ///
    /// Without the margin, a healthy cluster would spend its budget on the quantile itself, and none would be left when
    /// a node falters.
    pub fn new(quantile: f64, margin: f64) -> Self {
        Self {
            quantile: quantile.clamp(0.0, 1.0),
            margin,
            classes: Default::default(),
        }
    }

    /// The threshold for this many keys, in microseconds; `None` before enough samples.
    #[inline]
    pub fn threshold_us(&self, keys: usize) -> Option<u64> {
        let class = self.class(keys);
        if class.samples.load(Relaxed) < SAMPLES_MIN {
            return None;
        }
        let threshold = class.quantile_ns.load(Relaxed) as f64 * self.margin / 1000.0;
        Some((threshold as u64).max(THRESHOLD_MIN_US))
    }

    /// Records that this many keys were answered in this time.
    #[inline]
    pub fn answered(&self, keys: usize, elapsed_us: u64) {
        let class = self.class(keys);
        let quantile = class.quantile_ns.load(Relaxed) as f64;
        let elapsed = elapsed_us as f64 * 1000.0;
        if quantile == 0.0 {
            class
                .quantile_ns
                .store((elapsed * 2.0).clamp(1.0, QUANTILE_MAX_NS) as u64, Relaxed);
        }
        self.step(class, quantile, elapsed > quantile);
    }

    /// Records that this many keys were not answered within the threshold. Call this instead of [`Self::answered`], not
    /// as well.
    pub fn exceeded(&self, keys: usize) {
        let class = self.class(keys);
        self.step(class, class.quantile_ns.load(Relaxed) as f64, true);
    }

    /// Two concurrent samples may lose a step; the next ones make up for it.
    #[inline]
    fn step(&self, class: &Class, quantile: f64, above: bool) {
        let samples = class.samples.load(Relaxed);
        if samples < u32::MAX {
            class.samples.store(samples + 1, Relaxed);
        }
        if quantile == 0.0 {
            return;
        }
        let gain = GAIN.max(1.0 / (1.0 + f64::from(samples) / 4.0));
        let factor = match above {
            true => 1.0 + gain * self.quantile,
            false => 1.0 - gain * (1.0 - self.quantile),
        };
        class
            .quantile_ns
            .store((quantile * factor).clamp(1.0, QUANTILE_MAX_NS) as u64, Relaxed);
    }

    #[inline]
    fn class(&self, keys: usize) -> &Class {
        let bits = usize::BITS - keys.saturating_sub(1).leading_zeros();
        &self.classes[(bits.div_ceil(2) as usize).min(CLASSES - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seeded generator of latencies: uniform, from 100 to 1100 µs.
    fn even(random: &mut fastrand::Rng) -> u64 {
        random.u64(100..1100)
    }

    #[test]
    fn there_is_no_threshold_before_enough_samples() {
        let thresholds = Thresholds::new(0.95, 1.0);
        (1..SAMPLES_MIN).for_each(|_| thresholds.answered(1, 5_000));
        assert_eq!(thresholds.threshold_us(1), None);
        thresholds.answered(1, 5_000);
        assert!(thresholds.threshold_us(1).is_some());
        assert_eq!(thresholds.threshold_us(2), None, "another class");
    }

    #[test]
    fn the_threshold_finds_and_follows_the_quantile() {
        let (thresholds, mut random) = (Thresholds::new(0.95, 10.0), fastrand::Rng::with_seed(1));
        let mean = |random: &mut fastrand::Rng, factor: u64| {
            let mut sum = 0;
            for at in 0..20_000 {
                thresholds.answered(3, even(random) * factor);
                if at >= 10_000 {
                    sum += thresholds.threshold_us(3).unwrap() / 10;
                }
            }
            sum / 10_000
        };
        let near = |found: u64, expected: u64| found.abs_diff(expected) * 12 < expected;
        let found = mean(&mut random, 1);
        assert!(near(found, 1050), "{found}");
        let found = mean(&mut random, 10);
        assert!(near(found, 10_500), "{found}");
    }

    #[test]
    fn unanswered_requests_raise_the_threshold() {
        let thresholds = Thresholds::new(0.95, 1.0);
        (0..100).for_each(|_| thresholds.answered(1, 2_000));
        let before = thresholds.threshold_us(1).unwrap();
        (0..50).for_each(|_| thresholds.exceeded(1));
        assert!(thresholds.threshold_us(1).unwrap() > before * 2);
    }

    #[test]
    fn classes_are_powers_of_four() {
        let thresholds = Thresholds::new(0.5, 1.0);
        let place = |keys| {
            let class: *const Class = thresholds.class(keys);
            thresholds.classes.iter().position(|c| std::ptr::eq(c, class)).unwrap()
        };
        let classes: Vec<usize> = [1, 2, 4, 5, 16, 17, 64, 65, 256, 257, 1 << 20].map(place).to_vec();
        assert_eq!(classes, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    }
}
