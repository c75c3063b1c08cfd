//! Randomness from a seed that is printed, so that a failure can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator, small and good enough for choosing moments.
pub struct Random(u64);

impl Random {
    /// Takes the seed from `FONDACO_TEST_SEED` or the clock, and prints it.
    pub fn from_seed(what: &str) -> Self {
        let given = std::env::var("FONDACO_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("{what}: FONDACO_TEST_SEED={seed}");
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
