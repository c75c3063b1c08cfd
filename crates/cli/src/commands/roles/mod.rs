//! `fondaco dev`, `server`, `router` and `controller`: processes that run in the foreground until they are told to
//! stop.

use std::io::IsTerminal;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use fondaco_roles::{Dev, Running};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::output::Output;

mod configuration;
mod dev;
mod machines;
mod member;

pub use dev::{DevOptions, dev};
pub use member::{ControllerOptions, RouterOptions, ServerOptions, controller, router, server};

/// The default address of the RESP port.
const RESP_DEFAULT: &str = "127.0.0.1:6500";
/// The default address of the control port.
const HTTP_DEFAULT: &str = "127.0.0.1:6580";

/// How often to check whether a process serves yet.
const SERVING_TICK: Duration = Duration::from_millis(5);

/// Options of logging.
#[derive(Debug, Args)]
struct LogOptions {
    /// The level of the log: error, warn, info, debug, trace, or a filter by module
    #[arg(long, env = "FONDACO_LOG", value_name = "FILTER")]
    log: Option<String>,

    /// The format of the log
    #[arg(long, env = "FONDACO_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogFormat {
    /// A line of text for each event
    Text,
    /// A line of JSON for each event
    Json,
}

/// The process or cluster that runs here.
enum Started {
    One(Box<Running>),
    Cluster(Dev),
}

/// The signals that stop a process; handlers are installed before the process starts.
struct Signals {
    runtime: tokio::runtime::Runtime,
    interrupted: Signal,
    terminated: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot listen for signals")?;
        let (interrupted, terminated) = {
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        Ok(Self {
            runtime,
            interrupted,
            terminated,
        })
    }

    /// Waits until a process serves. Returns `None` if it was told to stop before that, and has stopped.
    fn wait_serving(&mut self, running: Running) -> anyhow::Result<Option<Running>> {
        self.runtime.block_on(async {
            loop {
                match running.wait_serving(Duration::ZERO) {
                    Ok(true) => return Ok(Some(running)),
                    Ok(false) => {}
                    Err(error) => {
                        running.shutdown().await;
                        return Err(error.into());
                    }
                }
                tokio::select! {
                    _ = self.interrupted.recv() => break,
                    _ = self.terminated.recv() => break,
                    () = tokio::time::sleep(SERVING_TICK) => {}
                }
            }
            tracing::info!("stopped before it could serve");
            running.shutdown().await;
            Ok(None)
        })
    }

    /// Runs the process until it is told to stop, or has to.
    fn wait(mut self, started: Started) -> anyhow::Result<()> {
        self.runtime.block_on(async {
            let failed = async {
                match &started {
                    Started::One(running) => running.failed().await,
                    Started::Cluster(_) => std::future::pending().await,
                }
            };
            let failed = tokio::select! {
                _ = self.interrupted.recv() => None,
                _ = self.terminated.recv() => None,
                error = failed => Some(error),
            };
            tracing::info!("stopping");
            match started {
                Started::One(running) => running.shutdown().await,
                Started::Cluster(dev) => dev.shutdown().await,
            }
            match failed {
                Some(error) => bail!("{error}"),
                None => Ok(()),
            }
        })
    }
}

/// Prints the addresses of the ports. If standard output is closed, the process serves all the same.
fn announce<T: Serialize>(output: &Output, serving: &T, text: impl FnOnce(&T) -> String) {
    if let Err(error) = output.result(serving, text) {
        tracing::warn!(%error, "cannot print the addresses of the ports");
    }
}

fn start_log(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("invalid log filter {filter:?}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are for terminals; in a file they are noise.
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // It would panic where standard error is closed: `fondaco dev 2>&1 | head`.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// Resolves an address: host or IP, and port.
fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("invalid address {text:?}: use host:port"))?;
    found.next().with_context(|| format!("{text:?} resolves to no address"))
}
