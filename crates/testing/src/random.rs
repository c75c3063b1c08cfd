//! Randomness from a seed that is printed, so that a failure can be repeated.

use fastrand::Rng;

/// The variable that repeats a run.
const SEED: &str = "FONDACO_TEST_SEED";

/// A generator from the seed in `FONDACO_TEST_SEED`, or else from one that differs in each run; prints it.
///
/// # Panics
/// If the variable is not a number.
pub fn random(what: &str) -> Rng {
    random_or(what, fastrand::u64(..))
}

/// A generator from the seed in `FONDACO_TEST_SEED`, or else from this one; prints it.
///
/// # Panics
/// If the variable is not a number.
pub fn random_or(what: &str, seed: u64) -> Rng {
    let given = std::env::var(SEED).ok();
    let seed = given.map_or(seed, |text| {
        let number = text.parse();
        number.unwrap_or_else(|error| panic!("{SEED} is no seed: {text:?}: {error}"))
    });
    println!("{what}: {SEED}={seed}");
    Rng::with_seed(seed)
}
