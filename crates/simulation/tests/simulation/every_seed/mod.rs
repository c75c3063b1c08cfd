//! Runs a simulation from many seeds on all cores, or replays a single seed.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Returns the outcome of each seed, and their number; `None` if a single seed was replayed. `FONDACO_SIMULATION_SEED`
/// replays that seed; otherwise `FONDACO_SIMULATION_SEEDS` sets the number of seeds, and `FONDACO_SIMULATION_FIRST` the
/// first one.
///
/// `simulate` fails with the seed. `replay` runs it again with notes of all events, and panics if it fails.
pub fn run<O: Clone + Debug + Send>(
    seeds: u64,
    simulate: impl Fn(u64) -> Result<O, u64> + Sync,
    replay: impl Fn(u64) -> O,
) -> Option<(u64, Vec<O>)> {
    if let Some(seed) = number("FONDACO_SIMULATION_SEED") {
        println!("{:#?}", replay(seed));
        return None;
    }
    let seeds = number("FONDACO_SIMULATION_SEEDS").unwrap_or(seeds);
    let first = number("FONDACO_SIMULATION_FIRST").unwrap_or(0);
    let next = AtomicU64::new(first);
    let run = || {
        let mut outcomes = Vec::new();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + seeds {
                return Ok(outcomes);
            }
            outcomes.push(simulate(seed)?);
        }
    };
    let outcomes: Result<Vec<O>, u64> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let results: Result<Vec<_>, u64> = results.into_iter().collect();
        results.map(|outcomes| outcomes.concat())
    });
    let outcomes = outcomes.unwrap_or_else(|seed| {
        replay(seed);
        panic!("seed {seed} broke a rule, but not in a second run: the simulation is not deterministic");
    });
    Some((seeds, outcomes))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")),
    )
}
