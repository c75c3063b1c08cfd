//! The control port of a fondaco process, used like by its operators: by the command line, and by HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fondaco_format::GIVEN_AWAY_FILE;

use crate::machine::process::Launch;

/// The time limit of a push or a deploy.
pub const PUSH_LIMIT: Duration = Duration::from_secs(240);
/// The time limit of any other command.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// The control port of a process.
#[derive(Debug, Clone)]
pub struct ControlPort {
    program: PathBuf,
    http: SocketAddr,
    log: PathBuf,
}

impl ControlPort {
    /// The port at this address; `program` is the command line, which writes to a log.
    pub fn new(program: &Path, http: SocketAddr, log: PathBuf) -> Self {
        let program = program.to_owned();
        Self { program, http, log }
    }

    /// A command that uses this port.
    pub fn command(&self, arguments: &[&str]) -> Launch {
        Launch::new(&self.program)
            .args(arguments)
            .args(["--quiet", "--http", &self.http.to_string()])
            .log_to(&self.log)
    }

    /// Runs a command that uses this port.
    pub fn run(&self, arguments: &[&str]) -> Result<()> {
        self.command(arguments).run(COMMAND_LIMIT).map(drop)
    }

    /// Creates a store of a kind, with these options.
    pub fn create(&self, kind: &str, store: &str, options: &[&str]) -> Result<()> {
        self.run(&[&["store", "create", store, "--kind", kind], options].concat())
    }

    /// Alters a versioned or a hybrid store.
    pub fn alter(&self, store: &str, options: &[&str]) -> Result<()> {
        self.run(&[&["store", "alter", store], options].concat())
    }

    /// Deploys a built version to a store, and marks its files as given away. Returns how long the command took.
    pub fn deploy(&self, store: &str, version: &Path, options: &[&str]) -> Result<Duration> {
        // The benchmark does not change versions, so a node may link their files.
        let statement = version.join(GIVEN_AWAY_FILE);
        std::fs::write(&statement, "").with_context(|| format!("could not write {statement:?}"))?;
        let version = version.to_str().context("a path that is not text")?;
        let deploy = [&["deploy", store, version], options].concat();
        Ok(self.command(&deploy).run(PUSH_LIMIT)?.wall)
    }

    /// Changes a setting; returns when this process applies it.
    pub fn set(&self, setting: &str, value: impl std::fmt::Display) -> Result<()> {
        self.run(&["config", "set", &format!("{setting}={value}")])
    }

    /// Swaps a version in; returns when it is served.
    pub fn swap(&self, agent: &ureq::Agent, store: &str, version: u64) -> Result<()> {
        let url = self.url(&format!("/v1/stores/{store}/swap"));
        let body = serde_json::json!({ "version": version });
        let request = agent.post(&url).content_type("application/json");
        request.send(body.to_string())?;
        Ok(())
    }

    /// The answer of a path, if it is a success.
    pub fn show(&self, path: &str) -> Result<serde_json::Value> {
        Ok(serde_json::from_reader(
            ureq::get(self.url(path)).call()?.body_mut().as_reader(),
        )?)
    }

    /// Whether the process is ready to serve everything that it should.
    pub fn is_ready(&self) -> bool {
        ureq::get(self.url("/readyz")).call().is_ok()
    }

    /// A counter of the process.
    pub fn counter(&self, name: &str) -> Result<u64> {
        self.gauge(&format!("{name}_total"))
    }

    /// A gauge of the process.
    pub fn gauge(&self, name: &str) -> Result<u64> {
        let metrics = ureq::get(self.url("/metrics")).call()?.body_mut().read_to_string()?;
        let head = format!("fondaco_{name} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&head));
        Ok(value.with_context(|| format!("no metric {head:?}"))?.parse()?)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }
}
