//! The rows of the table. Each is a file of `bench/rows`, whose steps may call functions of [`procedures`].

mod calls;
mod expand;
mod fan_out;
pub mod procedures;
mod runner;
mod spec;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};

use crate::bench::Bench;
use crate::report::Row;
use runner::Running;
pub use spec::RowSpec;

/// The names of all rows, in the order of the table.
#[rustfmt::skip]
const NAMES: [&str; 44] = [
    "hot-get", "cold-get", "cold-served", "hot-tail", "get-served", "mget-served", "two-loops", "watched", "loading",
    "engines", "versioned-one", "versioned-three", "long-values", "convergence", "swap", "swap-warm", "swap-at-once", "many-swaps",
    "push-tail", "push-zipf", "routed", "rebalance", "balance", "balance-joins", "router-cache", "hedging", "deadline", "push-cluster", "node-death", "streams",
    "fresh", "stream-tail", "stream-reads", "large-overlay", "many-streams", "bulk", "graph-tail", "hot-store", "fan-out-simulated",
    "fan-out-cluster", "scale-stores", "scale-clients", "scale-partitions", "scale-keys",
];

/// All rows, in the order of the table, from their files in a directory.
pub fn all(dir: &Path) -> Result<Vec<RowSpec>> {
    let row = |name: &&str| {
        let file = dir.join(name).with_extension("toml");
        let text = fs::read_to_string(&file).with_context(|| format!("could not read {file:?}"))?;
        RowSpec::parse(&text).with_context(|| format!("{file:?} is no row"))
    };
    NAMES.iter().map(row).collect()
}

impl RowSpec {
    /// Measures the row. A failure is a result, too.
    pub fn measure(&self, bench: &Bench) -> Row {
        let started = Instant::now();
        // The helpers of tests, which start other systems, fail by panicking.
        let measured = catch_unwind(AssertUnwindSafe(|| Running::start(bench, self)?.measure()));
        let measured = measured.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
            Err(anyhow!("{said}"))
        });
        let (measured, failure) = match measured {
            Ok(measured) => (measured, None),
            Err(error) => (Default::default(), Some(format!("{error:#}"))),
        };
        let (lines, notes, charts) = measured;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Row {
            name: self.name.clone(),
            work: self.work.clone(),
            quick: bench.quick,
            measured_unix_s: since.map_or(0, |since| since.as_secs()),
            commit: bench.commit.clone(),
            processor: None,
            took_s: started.elapsed().as_secs_f64(),
            lines,
            notes,
            charts,
            failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_are_complete() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("rows");
        for row in all(&dir).unwrap() {
            assert!(!row.phases.is_empty(), "{} measures nothing", row.name);
        }
    }
}
