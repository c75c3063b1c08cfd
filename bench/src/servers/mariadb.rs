//! MariaDB with one InnoDB table, tuned for loading, and `LOAD DATA` from our converter's rows.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::Bench;
use crate::dataset::{Dataset, key};
use crate::machine::process::{Launch, Process};

const START_LIMIT: Duration = Duration::from_secs(60);
const LOAD_LIMIT: Duration = Duration::from_secs(280);
const POLL: Duration = Duration::from_millis(100);

/// A running server.
pub struct MariaDb {
    _process: Process,
    socket: PathBuf,
    log: PathBuf,
}

impl MariaDb {
    /// Makes a data directory and starts a server on it, reached by a socket only.
    pub fn start(bench: &Bench) -> Result<Self> {
        let data = bench.fresh_dir("mariadb")?;
        let log = bench.log("mariadb");
        Launch::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--user=root",
            ])
            .args([format!("--datadir={}", data.display())])
            .log_to(&log)
            .run(START_LIMIT)?;
        let socket = data.join("socket");
        let mut process = Launch::new("mariadbd")
            .args([
                "--no-defaults",
                "--user=root",
                "--skip-networking",
                "--skip-log-bin",
                "--local-infile=1",
            ])
            .args([
                "--innodb-buffer-pool-size=4G",
                "--innodb-log-file-size=2G",
                "--innodb-doublewrite=0",
            ])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=O_DIRECT"])
            // Its data is thrown away: what is dirty at the end need not be written.
            .args(["--innodb-fast-shutdown=2"])
            .args([
                format!("--datadir={}", data.display()),
                format!("--socket={}", socket.display()),
            ])
            .log_to(&log)
            .start()?;
        let deadline = Instant::now() + START_LIMIT;
        let probing = Self::client(&socket, &log, "SELECT 1");
        while probing.run(START_LIMIT).is_err() {
            if process.ended()?.is_some() || Instant::now() > deadline {
                bail!("MariaDB did not start{}", process.last_words());
            }
            thread::sleep(POLL);
        }
        Ok(Self {
            _process: process,
            socket,
            log,
        })
    }

    fn client(socket: &Path, log: &Path, statement: &str) -> Launch {
        Launch::new("mariadb")
            .args([
                "--no-defaults",
                "--user=root",
                "--local-infile=1",
                "--batch",
                "--skip-column-names",
            ])
            .args([format!("--socket={}", socket.display())])
            .args(["--execute", statement])
            .log_to(log)
    }

    /// Loads a Parquet file into a new table, in the order of its keys, and gets one of them.
    pub fn load(&self, parquet: &Path, dataset: Dataset) -> Result<()> {
        let create = "CREATE OR REPLACE DATABASE bench; CREATE TABLE bench.records \
             (id VARBINARY(64) PRIMARY KEY, value VARBINARY(2048) NOT NULL) ENGINE=InnoDB CHARACTER SET binary";
        Self::client(&self.socket, &self.log, create).run(START_LIMIT)?;
        let started = Instant::now();
        let mut converter = Launch::own()?
            .args(["convert", "--to", "tsv", "--parquet"])
            .args([parquet])
            .log_to(&self.log)
            .spawn(Stdio::null(), Stdio::piped())?;
        let rows = converter.child().stdout.take().context("a converter without output")?;
        let load = "SET unique_checks=0, foreign_key_checks=0; \
             LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE bench.records CHARACTER SET binary (id, value)";
        let loader = Self::client(&self.socket, &self.log, load).spawn(rows.into(), Stdio::null())?;
        loader.finish(started, LOAD_LIMIT)?;
        converter.wait_for_success(LOAD_LIMIT)?;
        let last = key(dataset.records - 1);
        let select = format!(
            "SELECT LENGTH(value) FROM bench.records WHERE id = '{}'",
            String::from_utf8_lossy(&last)
        );
        let length = Self::client(&self.socket, &self.log, &select).output(START_LIMIT)?;
        ensure!(
            length.trim() == dataset.value_bytes.to_string(),
            "MariaDB has {length:?} as the length of the last value"
        );
        Ok(())
    }
}
