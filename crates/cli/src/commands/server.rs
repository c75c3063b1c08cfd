//! `fondaco dev` and `fondaco server`: running a node in the foreground.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use fondaco_control::{Config, Fondaco};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::build::{PARTITIONS_DEFAULT, partition_count};
use crate::output::Output;
use configuration::ServerFile;

mod configuration;

/// The usual address of the RESP port.
const RESP_DEFAULT: &str = "127.0.0.1:6500";
/// The usual address of the control port.
const HTTP_DEFAULT: &str = "127.0.0.1:6580";

/// `fondaco dev`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco dev --data /tmp/fondaco")]
pub struct DevOptions {
    /// Where to keep data; it is there again the next time
    #[arg(long, env = "FONDACO_DATA", default_value = "fondaco-data", value_name = "DIRECTORY")]
    data: PathBuf,

    /// Where to serve RESP; port 0 is any that is free
    #[arg(long, env = "FONDACO_RESP", default_value = RESP_DEFAULT, value_name = "HOST:PORT")]
    resp: String,

    /// Where to serve HTTP; port 0 is any that is free
    #[arg(long, env = "FONDACO_HTTP", default_value = HTTP_DEFAULT, value_name = "HOST:PORT")]
    http: String,

    /// How many event loops serve RESP; 0 is one for each core
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    loops: usize,

    /// How many partitions there are: a power of two, set when the data directory is made
    #[arg(long, env = "FONDACO_PARTITIONS", default_value_t = PARTITIONS_DEFAULT, value_name = "COUNT")]
    partitions: u32,

    /// Require this token on the control port
    #[arg(long, env = "FONDACO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Serve beyond loopback, to everybody
    #[arg(long)]
    allow_insecure: bool,

    #[command(flatten)]
    log: LogOptions,
}

/// `fondaco server`.
#[derive(Debug, Args)]
#[command(after_help = "\
Flags override the file. docs/operations.md has all that the file may say.

Example:
  fondaco server --config /etc/fondaco.toml")]
pub struct ServerOptions {
    /// The configuration, TOML
    #[arg(long, env = "FONDACO_CONFIG", value_name = "FILE")]
    config: PathBuf,

    /// Where to keep data
    #[arg(long, env = "FONDACO_DATA", value_name = "DIRECTORY")]
    data: Option<PathBuf>,

    /// Where to serve RESP
    #[arg(long, env = "FONDACO_RESP", value_name = "HOST:PORT")]
    resp: Option<String>,

    /// Where to serve HTTP
    #[arg(long, env = "FONDACO_HTTP", value_name = "HOST:PORT")]
    http: Option<String>,

    /// How many event loops serve RESP; 0 is one for each core
    #[arg(long, value_name = "COUNT")]
    loops: Option<usize>,

    /// The token of the control port
    #[arg(long, env = "FONDACO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Serve beyond loopback even without users or token
    #[arg(long)]
    allow_insecure: bool,

    #[command(flatten)]
    log: LogOptions,
}

/// What to log, and how.
#[derive(Debug, Args)]
struct LogOptions {
    /// What to log: error, warn, info, debug, trace, or a filter by module
    #[arg(long, env = "FONDACO_LOG", value_name = "FILTER")]
    log: Option<String>,

    /// How to log
    #[arg(long, env = "FONDACO_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,
}

/// How to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogFormat {
    /// A line of text for each event
    Text,
    /// A line of JSON for each event
    Json,
}

/// Where a node serves, for programs.
#[derive(Serialize)]
struct Serving {
    resp: SocketAddr,
    http: SocketAddr,
    data: String,
    pid: u32,
}

/// Runs a node for trying things.
pub fn dev(options: DevOptions, output: &Output) -> anyhow::Result<()> {
    let mut config = Config::local(&options.data, partition_count(options.partitions)?);
    config.resp_listen = resolve(&options.resp)?;
    config.http_listen = resolve(&options.http)?;
    config.loops = options.loops;
    config.token = options.token;
    config.allow_insecure = options.allow_insecure;
    // What a reader of the first lines should see is below, not the log.
    start_log(
        options.log.log.as_deref().unwrap_or("warn"),
        options.log.log_format.unwrap_or(LogFormat::Text),
    )?;
    run(config, output, |serving| {
        format!(
            "fondaco serves\n  RESP  {}   redis-cli -p {}\n  HTTP  http://{}\n  data  {}\n\
             next: fondaco push STORE FILE --key COLUMN --create{}\n",
            serving.resp,
            serving.resp.port(),
            serving.http,
            serving.data,
            match serving.http.to_string().as_str() {
                HTTP_DEFAULT => String::new(),
                http => format!(" --http {http}"),
            }
        )
    })
}

/// Runs a storage node.
pub fn server(options: ServerOptions, output: &Output) -> anyhow::Result<()> {
    let file = ServerFile::read(&options.config)?;
    let filter = options.log.log.as_deref().or(file.log_filter()).unwrap_or("info");
    let format = options.log.log_format.or(file.log_format()).unwrap_or(LogFormat::Text);
    start_log(filter, format)?;
    let mut config = file.into_config()?;
    if let Some(data) = options.data {
        config.data_dir = data;
    }
    if let Some(resp) = &options.resp {
        config.resp_listen = resolve(resp)?;
    }
    if let Some(http) = &options.http {
        config.http_listen = resolve(http)?;
    }
    if let Some(loops) = options.loops {
        config.loops = loops;
    }
    if options.token.is_some() {
        config.token = options.token;
    }
    config.allow_insecure |= options.allow_insecure;
    run(config, output, |serving| {
        format!(
            "fondaco serves RESP on {}, HTTP on {}, data in {}\n",
            serving.resp, serving.http, serving.data
        )
    })
}

/// Runs a node until it is told to stop.
fn run(config: Config, output: &Output, text: impl FnOnce(&Serving) -> String) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot listen for signals")?;
    // Before the node is there, so that a signal in between stops it too.
    let (mut interrupted, mut terminated) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let data = config.data_dir.display().to_string();
    let running = Fondaco::start(config)?;
    let serving = Serving {
        resp: running.resp_addr(),
        http: running.http_addr(),
        data,
        pid: std::process::id(),
    };
    // Whoever started it may have closed its standard output: it serves all the same.
    if let Err(error) = output.result(&serving, text) {
        tracing::warn!(%error, "cannot say where it serves");
    }
    runtime.block_on(async {
        tokio::select! {
            _ = interrupted.recv() => tracing::info!("interrupted: stopping"),
            _ = terminated.recv() => tracing::info!("terminated: stopping"),
        }
        running.shutdown().await;
    });
    Ok(())
}

fn start_log(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("invalid log filter {filter:?}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// The address that a text means: numbers, or a name.
fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("invalid address {text:?}: use host:port"))?;
    found.next().with_context(|| format!("no address is named {text:?}"))
}
