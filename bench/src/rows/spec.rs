//! A row of the table as data: what is started with which records, which loads it gets in turns, and which figures are
//! compared. The rows are the files in `bench/rows`.
//!
//! Texts may contain `{variable}` (see [`Figures::text`](crate::report::Figures::text)), and `{~figure}`, its median.

use anyhow::Result;
use serde::{Deserialize, Deserializer};

use super::expand::expand;
use crate::report::spec::{ChartSpec, LineSpec};
use crate::servers::fondaco::{STORE, Shape};

/// A row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowSpec {
    /// The name for `--only`.
    pub name: String,
    /// The description.
    pub work: String,
    /// The name of its records: see [`Bench::dataset`](crate::bench::Bench::dataset).
    #[serde(default = "served")]
    pub data: String,
    /// The limit for the memory of `limited` processes together, page cache included: in a quick run, and in a whole one.
    pub limit_bytes: Option<[u64; 2]>,
    /// The servers that are started, in this order.
    #[serde(default)]
    pub servers: Vec<ServerSpec>,
    /// The stores that are filled, in this order.
    #[serde(default)]
    pub stores: Vec<StoreSpec>,
    /// The measurements, in this order.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// The lines of the table.
    #[serde(default)]
    pub lines: Vec<LineSpec>,
    /// Remarks. One that is empty is left out.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The charts.
    #[serde(default)]
    pub charts: Vec<ChartSpec>,
}

/// A process, or several that belong together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// The name by which the row refers to it.
    #[serde(default = "fondaco")]
    pub name: String,
    #[serde(default)]
    pub kind: ServerKind,
    /// Runs on the servers' core only.
    #[serde(default)]
    pub pinned: bool,
    /// Belongs to the processes whose memory is limited.
    #[serde(default)]
    pub limited: bool,
    /// What the keys of a bare server begin with.
    #[serde(default = "records_prefix")]
    pub prefix: String,
    /// Whether Redis writes a log.
    #[serde(default)]
    pub logs: bool,
    /// The replicas of Redis, one of which each write waits for.
    #[serde(default)]
    pub replicas: usize,
    /// The processes of fondaco.
    #[serde(default)]
    pub shape: Shape,
}

/// The kinds of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    #[default]
    Fondaco,
    Redis,
    /// Valkey, instead of Redis.
    Valkey,
    Mariadb,
    /// Receives requests and sends replies, and does nothing else.
    Bare,
    Kafka,
    /// The engine of a store, called directly: the name is that of the engine.
    Engine,
    /// Takes spans of traces, and forgets them.
    Collector,
}

/// Records in a server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSpec {
    #[serde(default = "fondaco")]
    pub on: String,
    /// The name, or the prefix of the keys.
    #[serde(default = "default_store")]
    pub name: String,
    #[serde(default)]
    pub kind: StoreKind,
    /// The records, if they are not those of the row.
    pub data: Option<String>,
    /// Options of `fondaco store create`.
    #[serde(default)]
    pub options: Vec<String>,
    /// How it is filled.
    #[serde(default)]
    pub fill: Fill,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    #[default]
    Batch,
    Versioned,
    Hybrid,
}

/// How records come into a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// In bulk: a deployed version; commands through `redis-cli --pipe`; `LOAD DATA`.
    #[default]
    Bulk,
    /// By writing one record after the other.
    Write,
    /// By writing to the replicas of a versioned store.
    Replicas,
    Nothing,
}

/// Measurements whose rounds alternate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The steps that run once before the rounds.
    #[serde(default)]
    pub before: Vec<Step>,
    /// A round. It is measured up to five times.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// The most rounds.
    pub rounds_max: Option<u64>,
    /// No further round starts after so many minutes of the row.
    pub minutes_max: Option<u64>,
    /// Whether there is one more round at first, which does not count.
    #[serde(default)]
    pub warm_up: bool,
    /// The steps that run once after the rounds.
    #[serde(default)]
    pub after: Vec<Step>,
}

/// A load, or a call of a function.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// A function of [`calls`](super::calls) instead of a load.
    pub call: Option<String>,
    /// Its arguments.
    #[serde(deserialize_with = "texts")]
    pub arguments: Vec<String>,
    /// The first part of the names of its figures; nothing is recorded without.
    pub name: String,
    /// The server.
    pub on: String,
    /// The server process that gets the requests.
    pub at: Place,
    /// The load generator.
    pub by: Client,
    /// The store, or the prefix of the keys.
    pub store: String,
    /// The name of the store's records, if they are not the row's.
    pub data: Option<String>,
    pub keys: Distribution,
    pub connections: usize,
    /// The number of requests in flight on each connection.
    pub pipeline: usize,
    /// Requests per second; unlimited without. One in flight at a time for the client library if it is 0.
    pub rate: Option<f64>,
    /// Half of the median of this figure, in place of a rate.
    pub half_of: Option<String>,
    pub keys_per_request: usize,
    /// The deadline of each request, at which keys may be late: `FONDACO.MGET` with `PARTIAL`.
    pub deadline_ms: Option<u64>,
    /// Whether rates count keys, not requests.
    pub counts_keys: bool,
    /// The share of writes, 0 to 1.
    pub writes: f64,
    /// Whether each write of a directly called engine is synced.
    pub synced: bool,
    /// The duration, in parts of a round's usual one.
    pub time: f64,
    /// The least duration, in seconds.
    pub seconds_min: f64,
    /// Whether all requests count, since CPU time does: there is no warm-up.
    pub whole: bool,
    /// The total number of requests, for `redis-benchmark`.
    pub requests: u64,
    /// Threads that generate the same load.
    pub threads: u64,
    /// Pins the generator to the clients' core.
    pub pinned: bool,
    /// Earlier writes are on disk before, and background work is over afterwards: it belongs to the CPU time.
    pub settle: bool,
    /// As many requests on as many other connections, with these keys, under this name.
    pub company: Option<(String, Distribution)>,
    /// A function of [`calls`](super::calls) that goes on for as long as the load, and counts.
    pub beside: Option<String>,
    /// A function of [`calls`](super::calls); the load ends when it does.
    pub during: Option<String>,
    /// Whether the first node is stopped again and again.
    pub pauses: bool,
    /// Whether the client library hedges.
    pub hedge: bool,
    /// The client library's strategy.
    pub strategy: Option<String>,
    /// The groups that it asks.
    pub groups: Option<usize>,
    /// The rate of requests to nodes that a controller is to make.
    pub controlled_rate: Option<f64>,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            call: None,
            arguments: Vec::new(),
            name: String::new(),
            on: fondaco(),
            at: Place::Front,
            by: Client::Generator,
            store: default_store(),
            data: None,
            keys: Distribution::Uniform,
            connections: 15,
            pipeline: 16,
            rate: None,
            half_of: None,
            keys_per_request: 1,
            deadline_ms: None,
            counts_keys: false,
            writes: 0.0,
            synced: false,
            time: 1.0,
            seconds_min: 0.0,
            whole: false,
            requests: 0,
            threads: 1,
            pinned: false,
            settle: false,
            company: None,
            beside: None,
            during: None,
            pauses: false,
            hedge: true,
            strategy: None,
            groups: None,
            controlled_rate: None,
        }
    }
}

/// The process of a server that gets the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The router of a cluster, or the only process.
    Front,
    /// The first node of a cluster.
    Node,
    /// For each key, the first node that owns it.
    Owners,
}

/// A load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// The load generator of this program.
    Generator,
    /// `redis-benchmark`, on the clients' core.
    RedisBenchmark,
    /// fondaco's client library.
    Library,
}

/// The distribution of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    Uniform,
    Zipf,
    /// 1000 keys.
    Hot,
}

impl RowSpec {
    /// Reads a row's file.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(toml::Value::Table(expand(toml::from_str(text)?)?).try_into()?)
    }
}

/// Texts, of which some may be numbers.
fn texts<'de, D: Deserializer<'de>>(values: D) -> Result<Vec<String>, D::Error> {
    let text = |value: toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let values = Vec::<toml::Value>::deserialize(values)?;
    Ok(values.into_iter().map(text).collect())
}

fn served() -> String {
    "served".into()
}

fn records_prefix() -> String {
    "records:".into()
}

fn fondaco() -> String {
    "fondaco".into()
}

fn default_store() -> String {
    STORE.into()
}
