//! One benchmark run: its directories, its size, and the data that its rows share.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fondaco_builder::{Progress, build};
use parking_lot::Mutex;

use crate::child::Child;
use crate::dataset::elsewhere::Elsewhere;
use crate::dataset::{Dataset, file};
use crate::machine::process::Launch;
use crate::peers::EngineKind;
use crate::peers::fondaco::build_options;
use crate::servers::fondaco::STORE;

/// The time limit for preparing one engine.
const LOAD_LIMIT: Duration = Duration::from_secs(300);

/// One run of the benchmark.
pub struct Bench {
    /// A private directory, deleted at the end.
    pub work: PathBuf,
    /// A smoke run: small data, one round.
    pub quick: bool,
    /// Use 10 GB in the swap row instead of 2.
    pub full: bool,
    /// The server program, if it was built.
    pub fondaco: PathBuf,
    /// The cores; at least one.
    pub cpus: Vec<usize>,
    /// The commit that is measured, found before the first result was written.
    pub commit: String,
    /// The parts that were prepared once, by name.
    prepared: Arc<Mutex<HashMap<String, PathBuf>>>,
}

impl Bench {
    /// A run in a directory.
    pub fn new(work: PathBuf, fondaco: PathBuf, quick: bool, full: bool) -> Result<Self> {
        let cpus = crate::machine::cpus()?;
        ensure!(!cpus.is_empty(), "no CPU to run on");
        Ok(Self {
            work,
            quick,
            full,
            fondaco,
            cpus,
            commit: commit(),
            prepared: Arc::default(),
        })
    }

    /// The same run with another server program, in a directory of its own. It shares the prepared data.
    pub fn with_program(&self, work: PathBuf, fondaco: PathBuf) -> Self {
        Self {
            work,
            fondaco,
            cpus: self.cpus.clone(),
            commit: self.commit.clone(),
            prepared: Arc::clone(&self.prepared),
            ..*self
        }
    }

    /// How many rounds each figure has.
    pub fn rounds(&self) -> u64 {
        if self.quick { 1 } else { 5 }
    }

    /// The duration of a round of a continuous load.
    pub fn round_time(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 3000 })
    }

    /// The records of this name. Fewer in a quick run.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let (quick, whole, value_bytes) = match name {
            // Served from memory.
            "served" => (50_000, 1_000_000, 100),
            "served-1024" => (50_000, 1_000_000, 1024),
            // Loaded and looked up in process.
            "small" => (50_000, 10_000_000, 100),
            "large" => (40_000, 2_000_000, 1024),
            "swapped" if self.full => (40_000, 10_000_000, 1024),
            "swapped" => return self.dataset("large"),
            // Copied between nodes.
            "moved" => (40_000, 1_000_000, 1024),
            // Changed.
            "mutable" => (20_000, 1_000_000, 1024),
            "overlay" => (200_000, 10_000_000, 200),
            "confined" => (20_000, 300_000, 1024),
            "converging" => (100_000, 10_000_000, 1024),
            "tiny" => (1000, 1000, 100),
            "keys-1m" => (20_000, 1_000_000, 20),
            "keys-10m" => (50_000, 10_000_000, 20),
            "keys-100m" => (100_000, 100_000_000, 20),
            "megabyte" => (9_000, 9_000, 100),
            _ => bail!("no records are called {name:?}"),
        };
        let records = if self.quick { quick } else { whole };
        Ok(Dataset { records, value_bytes })
    }

    /// The core of a server, or of a process that runs alone.
    pub fn server_cpu(&self) -> usize {
        self.cpus[0]
    }

    /// The core of its clients.
    pub fn client_cpu(&self) -> usize {
        self.cpus[self.cpus.len() - 1]
    }

    /// The dataset as a Parquet file.
    pub fn parquet(&self, dataset: Dataset) -> Result<PathBuf> {
        self.prepare(&format!("{dataset}.parquet"), |path| file::write(dataset, path))
    }

    /// The dataset in the files of an engine.
    pub fn engine_dir(&self, engine: EngineKind, dataset: Dataset) -> Result<PathBuf> {
        let parquet = self.parquet(dataset)?;
        self.prepare(&format!("{dataset}-{}", engine.files()), |path| {
            load_launch(engine, &parquet, path)?
                .log_to(self.log("load"))
                .run(LOAD_LIMIT)
                .map(drop)
        })
    }

    /// The dataset as a version for a store of this name.
    pub fn version_for(&self, store: &str, dataset: Dataset) -> Result<PathBuf> {
        if store == STORE {
            return self.engine_dir(EngineKind::Fondaco, dataset);
        }
        let parquet = self.parquet(dataset)?;
        self.prepare(&format!("{dataset}-{store}"), |dir| {
            build(&build_options(store, &parquet, dir, &self.work)?, &Progress::new())?;
            Ok(())
        })
    }

    /// The dataset as a version for a store, on another file system, from which it can be copied but not linked. No two
    /// numbers have a file in common, since a node does not copy what it has: each version has some records of its own.
    pub fn version_elsewhere(&self, store: &str, dataset: Dataset, number: u64) -> Result<Elsewhere> {
        const OWN_RECORDS: u64 = 1000;
        let parquet = self.parquet(dataset)?;
        let (more, dir) = (self.work.join("more.parquet"), self.work.join("elsewhere"));
        let first = dataset.records + number * OWN_RECORDS;
        file::write_records(first..first + OWN_RECORDS, dataset.value_bytes, &more)?;
        let mut options = build_options(store, &parquet, &dir, &self.work)?;
        options.inputs.push(more.display().to_string());
        build(&options, &Progress::new())?;
        let copy = Elsewhere::copy(&dir)?;
        fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
        Ok(copy)
    }

    /// Deletes the dataset in the files of some engines that no later row needs, to limit disk space.
    pub fn discard(&self, engines: &[EngineKind], dataset: Dataset) -> Result<()> {
        for engine in engines {
            let name = format!("{dataset}-{}", engine.files());
            let mut prepared = self.prepared.lock();
            if let Some(path) = prepared.remove(&name) {
                fs::remove_dir_all(&path).with_context(|| format!("could not delete {path:?}"))?;
            }
        }
        Ok(())
    }

    /// The log file of a process.
    pub fn log(&self, name: &str) -> PathBuf {
        self.work.join(format!("{name}.log"))
    }

    /// An empty directory with this name.
    pub fn fresh_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.work.join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))?;
        }
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Prepares something once per run.
    pub fn prepare(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        if let Some(path) = self.prepared_as(name) {
            return Ok(path);
        }
        eprintln!("  preparing {name}");
        let path = self.work.join(name);
        make(&path).with_context(|| format!("could not prepare {name}"))?;
        let mut prepared = self.prepared.lock();
        prepared.insert(name.to_owned(), path.clone());
        Ok(path)
    }

    fn prepared_as(&self, name: &str) -> Option<PathBuf> {
        self.prepared.lock().get(name).cloned()
    }
}

/// Launches this program to load a Parquet file into the files of an engine and get a key.
pub fn load_launch(engine: EngineKind, parquet: &Path, dir: &Path) -> Result<Launch> {
    let [parquet, dir] = [parquet, dir].map(Path::to_owned);
    Child::LoadEngine { engine, parquet, dir }.launch()
}

fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "unknown".into())
}
