//! MariaDB with one InnoDB table, tuned for loading, and `LOAD DATA` from our converter's rows.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fondaco_testing::MariaDb as Server;

use crate::bench::Bench;
use crate::dataset::{Dataset, key};
use crate::machine::process::Launch;

const STATEMENT_LIMIT: Duration = Duration::from_secs(60);
const LOAD_LIMIT: Duration = Duration::from_secs(280);

const OPTIONS: [&str; 7] = [
    "--local-infile=1",
    "--innodb-buffer-pool-size=4G",
    "--innodb-log-file-size=2G",
    "--innodb-doublewrite=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=O_DIRECT",
    // Its data is thrown away: what is dirty at the end need not be written.
    "--innodb-fast-shutdown=2",
];

/// A running server.
pub struct MariaDb {
    server: Server,
    log: PathBuf,
}

impl MariaDb {
    /// Starts a server on a directory of the benchmark.
    pub fn start(bench: &Bench) -> Result<Self> {
        Ok(Self {
            server: Server::start_in(&bench.fresh_dir("mariadb")?, &OPTIONS),
            log: bench.log("mariadb"),
        })
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

    /// Loads a Parquet file into a new table, in the order of its keys, and gets one of them.
    pub fn load(&self, parquet: &Path, dataset: Dataset) -> Result<()> {
        let create = "CREATE OR REPLACE DATABASE bench; CREATE TABLE bench.records \
             (id VARBINARY(64) PRIMARY KEY, value VARBINARY(2048) NOT NULL) ENGINE=InnoDB CHARACTER SET binary";
        self.client(create).run(STATEMENT_LIMIT)?;
        let started = Instant::now();
        let mut converter = Launch::own()?
            .args(["convert", "--to", "tsv", "--parquet"])
            .args([parquet])
            .log_to(&self.log)
            .spawn(Stdio::null(), Stdio::piped())?;
        let rows = converter.child().stdout.take().context("a converter without output")?;
        let load = "SET unique_checks=0, foreign_key_checks=0; \
             LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE bench.records CHARACTER SET binary (id, value)";
        let loader = self.client(load).spawn(rows.into(), Stdio::null())?;
        loader.finish(started, LOAD_LIMIT)?;
        converter.wait_for_success(LOAD_LIMIT)?;
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
