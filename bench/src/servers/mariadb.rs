//! MariaDB with one InnoDB table of keys and values, filled by `LOAD DATA` from our converter's rows, and tuned either
//! for that alone, or for later writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fondaco_testing::MariaDb as Server;

use crate::bench::Bench;
use crate::dataset::convert::{self, Form};
use crate::dataset::{Dataset, key};
use crate::machine::on_cpu;
use crate::machine::process::{Launch, cpu_time_of};

const STATEMENT_LIMIT: Duration = Duration::from_secs(60);
const LOAD_LIMIT: Duration = Duration::from_secs(280);

const OPTIONS: [&str; 6] = [
    "--local-infile=1",
    "--innodb-buffer-pool-size=4G",
    "--innodb-log-file-size=2G",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=O_DIRECT",
    // Its data is discarded: dirty pages at the end need not be written.
    "--innodb-fast-shutdown=2",
];
const DATABASE: &str = "bench";

/// A running server.
pub struct MariaDb {
    server: Server,
    dir: PathBuf,
    log: PathBuf,
}

impl MariaDb {
    /// Starts a server on a directory of the benchmark, on this core, or on all. It keeps its promises after a power failure, or
    /// is tuned to be loaded as fast as possible.
    pub fn start(bench: &Bench, cpu: Option<usize>, durable: bool) -> Result<Self> {
        let dir = bench.fresh_dir("mariadb")?;
        let quick = if durable { &[][..] } else { &["--innodb-doublewrite=0"] };
        let options = [&OPTIONS[..], quick].concat();
        let start = || Server::start_in(&dir, &options);
        Ok(Self {
            server: match cpu {
                Some(cpu) => on_cpu(cpu, start)?,
                None => start(),
            },
            dir,
            log: bench.log("mariadb"),
        })
    }

    /// The URL of the database, for a client library.
    pub fn url(&self) -> String {
        self.server.url(DATABASE)
    }

    /// Its CPU time so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time_of(self.server.id().context("MariaDB does not run")?)
    }

    /// From now on, an acknowledged transaction is on disk, or in the operating system's cache, and on disk within a second.
    pub fn set_synced(&self, synced: bool) -> Result<()> {
        let flush = if synced { 1 } else { 2 };
        self.client(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {flush}"))
            .run(STATEMENT_LIMIT)?;
        Ok(())
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        let dir = self.dir.clone();
        drop(self);
        fs::remove_dir_all(&dir).with_context(|| format!("could not delete {dir:?}"))
    }

    fn client(&self, statement: &str) -> Launch {
        Launch::new("mariadb")
            .args([
                "--no-defaults",
                "--user=root",
                "--local-infile=1",
                "--batch",
                "--skip-column-names",
            ])
            .args(["--host=127.0.0.1".to_owned(), format!("--port={}", self.server.port())])
            .args(["--execute", statement])
            .log_to(&self.log)
    }

    /// Loads a Parquet file into a new table, in key order, and reads one key.
    pub fn load(&self, parquet: &Path, dataset: Dataset) -> Result<()> {
        let create = "CREATE OR REPLACE DATABASE bench; CREATE TABLE bench.records \
             (id VARBINARY(64) PRIMARY KEY, value VARBINARY(2048) NOT NULL) ENGINE=InnoDB CHARACTER SET binary";
        self.client(create).run(STATEMENT_LIMIT)?;
        let load = "SET unique_checks=0, foreign_key_checks=0; \
             LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE bench.records CHARACTER SET binary (id, value)";
        convert::pipe_into(self.client(load), parquet, Form::Tsv, &self.log, LOAD_LIMIT)?;
        let last = key(dataset.records - 1);
        let select = format!(
            "SELECT LENGTH(value) FROM bench.records WHERE id = '{}'",
            String::from_utf8_lossy(&last)
        );
        let length = self.client(&select).output(STATEMENT_LIMIT)?;
        ensure!(
            length.trim() == dataset.value_bytes.to_string(),
            "MariaDB has {length:?} as the length of the last value"
        );
        Ok(())
    }
}
