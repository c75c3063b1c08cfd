//! The other processes of a run: this program again, with a task as JSON.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::dataset::convert::{self, Form};
use crate::dataset::{self, Dataset};
use crate::engines::{Candidate, mixed, trial, worker};
use crate::machine::process::Launch;
use crate::peers::{EngineKind, OpenSettings, ReadOnlyEngine, Reader, with_engine};
use crate::rows::procedures::streams::applied::{self, Consume};
use crate::servers;

/// The task of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Child {
    /// Load a Parquet file into an engine, and get one of its keys.
    LoadEngine {
        engine: EngineKind,
        parquet: PathBuf,
        dir: PathBuf,
    },
    /// Answer the load generator's requests without any look-up.
    BareServer {
        address: SocketAddr,
        prefix: String,
        value_bytes: usize,
    },
    /// Write the records of a Parquet file in the input format of another system to standard output.
    Convert { parquet: PathBuf, to: Form },
    /// Open an engine and run tasks from standard input.
    Worker {
        engine: EngineKind,
        dir: PathBuf,
        records: u64,
        cache_bytes: u64,
    },
    /// Read a topic of Kafka to its end, and print what that cost.
    Consume(Consume),
    /// Write to an engine and read from it, in an empty directory, and print the results.
    TryEngine {
        engine: Candidate,
        dir: PathBuf,
        dataset: Dataset,
        cache_bytes: u64,
        phase: Duration,
    },
    /// Fill an engine in an empty directory, run the mixes of standard input, and print the requests per second of CPU time.
    MixEngine {
        engine: Candidate,
        dir: PathBuf,
        dataset: Dataset,
        cache_bytes: u64,
    },
}

impl Child {
    /// This program with the task.
    pub fn launch(&self) -> Result<Launch> {
        Ok(Launch::own()?.args(["child", &serde_json::to_string(self)?]))
    }

    /// Does a task that was given as JSON.
    pub fn run(task: &str) -> Result<()> {
        match serde_json::from_str(task)? {
            Self::LoadEngine { engine, parquet, dir } => with_engine!(engine, load_engine(&parquet, &dir)),
            Self::BareServer {
                address,
                prefix,
                value_bytes,
            } => servers::bare::serve(address, &prefix, value_bytes),
            Self::Convert { parquet, to } => convert::run(&parquet, to),
            Self::Worker {
                engine,
                dir,
                records,
                cache_bytes,
            } => worker::run(engine, &dir, records, cache_bytes),
            Self::Consume(consume) => applied::consume(&consume),
            Self::TryEngine {
                engine,
                dir,
                dataset,
                cache_bytes,
                phase,
            } => trial::run(engine, &dir, dataset, cache_bytes, phase),
            Self::MixEngine {
                engine,
                dir,
                dataset,
                cache_bytes,
            } => mixed::run(engine, &dir, dataset, cache_bytes),
        }
    }
}

/// From a Parquet file to the first answer.
fn load_engine<E: ReadOnlyEngine>(parquet: &Path, dir: &Path) -> Result<()> {
    E::load(parquet, dir)?;
    let engine = E::open(dir, OpenSettings { cache_bytes: 64 << 20 })?;
    let first = engine
        .reader()?
        .get(&dataset::key(0), |value| dataset::is_value_of(0, value))?;
    ensure!(first == Some(true), "the first key is missing");
    Ok(())
}
