//! The options of `fondaco push` and `deploy` that say where a version goes, and on which way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use fondaco_admin::Endpoint;
use fondaco_model::{Gates, StoreName};
use fondaco_push::{Checks, Clusters, Topic};
use fondaco_stream::TopicAddress;

use super::WrongUsage;
use super::canary::CanaryOptions;
use crate::control_port::ControlPort;
use crate::output;

/// The options of a rollout.
#[derive(Debug, Clone, Args)]
pub struct RolloutOptions {
    /// Bring the version to these clusters, in place of --http: names of --clusters, or the control port of a process of each. All of
    /// them fetch it and pass their gates before the first one swaps it in, then they swap in this order; if one fails, none serves it.
    /// Token and TLS are the same for all
    #[arg(long, value_name = "CLUSTER,…", value_delimiter = ',')]
    to: Vec<String>,

    /// The names of clusters, and the control port of a process of each
    #[arg(long, env = "FONDACO_CLUSTERS", value_name = "NAME=ADDRESS,…", value_delimiter = ',', value_parser = named)]
    clusters: Vec<(String, String)>,

    /// How long to wait after the swap in each cluster of --to, before the next one. If the version is rolled back in that time, it is in
    /// all
    #[arg(long, value_name = "TIME", requires = "to", value_parser = output::parse_span_ms)]
    pause: Option<u64>,

    /// Leave out clusters of --to that fail or cannot be reached, in place of giving the version up in all
    #[arg(long, requires = "to")]
    partial: bool,

    /// How long to ask a cluster of --to again that does not answer; the default is a minute
    #[arg(long, value_name = "TIME", requires = "to", value_parser = output::parse_span_ms)]
    retry_time: Option<u64>,

    /// An id of this run, for instance a scheduler's: another try with the same id joins the first one, or repeats its answer,
    /// whatever became of it. Each store remembers its last sixteen
    #[arg(long, value_name = "ID")]
    run: Option<String>,

    /// Deploy the version even if its content is that of the current one
    #[arg(long)]
    pub again: bool,

    /// Let the version go live at once, while nodes copy it: look-ups read from its source what is not copied yet. Only of batch
    /// stores, and without gates
    #[arg(long, conflicts_with_all = ["gate", "gate_samples", "gate_command"])]
    serve_while_copying: bool,

    /// Also deploy the built version of another store at this path or URL: all versions become current by one write, so that no
    /// request sees some of them, or none does. May be repeated
    #[arg(long = "with", value_name = "STORE=URL", value_parser = store_and_place)]
    with: Vec<(StoreName, String)>,

    /// A gate that the version must pass before it goes live, beside those of the store: the allowed change of records or bytes, or
    /// the most keys that are gone, new or changed, or have nulls(FIELD). Otherwise it is fetched and held. With confirm, it is held until its checks or an
    /// operator confirm it. May be given several times
    #[arg(long, value_name = "'records -10%..+50%'|'gone <= 5%'|…")]
    gate: Vec<Gates>,

    /// Look these keys up in the version before it goes live: a file with {"key": "7", "value": "seven"} on each line; null if the
    /// key must be absent. Unless all are right, the version is held
    #[arg(long, value_name = "FILE", conflicts_with = "with")]
    gate_samples: Option<PathBuf>,

    /// Run this command of the shell before the version goes live; unless it exits with 0, the version is held. Its environment has
    /// FONDACO_STORE, FONDACO_VERSION and FONDACO_HTTP
    #[arg(long, value_name = "COMMAND", conflicts_with = "with")]
    gate_command: Option<String>,

    /// How long samples and command may take together
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = output::parse_span_ms)]
    gate_time: u64,

    #[command(flatten)]
    canary: CanaryOptions,
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, address)) if !name.is_empty() && !address.is_empty() => Ok((name.to_owned(), address.to_owned())),
        _ => Err("write NAME=ADDRESS, such as east=east-1:6580".to_owned()),
    }
}

fn store_and_place(text: &str) -> Result<(StoreName, String), String> {
    match text.split_once('=') {
        Some((store, place)) if !place.is_empty() => match store.parse::<StoreName>() {
            Ok(store) => Ok((store, place.to_owned())),
            Err(error) => Err(error.to_string()),
        },
        _ => Err("write STORE=URL, the location of a built version: fondaco build STORE … --output URL".to_owned()),
    }
}

impl RolloutOptions {
    /// The versions that become current with that of this store.
    pub fn with(&self, store: &StoreName) -> Result<BTreeMap<StoreName, String>, WrongUsage> {
        let mut with = BTreeMap::new();
        for (other, place) in &self.with {
            if other == store || with.insert(other.clone(), place.clone()).is_some() {
                return Err(WrongUsage(format!("store {other} is named twice")));
            }
        }
        Ok(with)
    }

    /// The clusters of `--to`, or the one of this port.
    pub fn clusters(&self, port: &ControlPort) -> anyhow::Result<Clusters> {
        let address = |to: &String| {
            let named = self.clusters.iter().find(|(name, _)| name == to);
            named.map_or_else(|| to.clone(), |(_, address)| address.clone())
        };
        let to: Vec<String> = self.to.iter().map(address).collect();
        for (number, address) in to.iter().enumerate() {
            // An address has a port.
            if !address.contains(':') {
                let message = format!("--to {address} is neither an address, HOST:PORT, nor a name of --clusters");
                return Err(WrongUsage(message).into());
            }
            if to[..number].contains(address) {
                return Err(WrongUsage(format!("--to names {address} twice")).into());
            }
        }
        let at = |address: &String| Endpoint {
            http: Some(address.clone()),
            resp: None,
            ..port.endpoint()
        };
        Ok(Clusters {
            endpoints: match &to[..] {
                [] => vec![port.endpoint()],
                to => to.iter().map(at).collect(),
            },
            is_several: !self.to.is_empty(),
            pause: Duration::from_millis(self.pause.unwrap_or(0)),
            partial: self.partial,
            retry_time: self.retry_time.map_or(Clusters::RETRY_TIME, Duration::from_millis),
            run: self.run.clone(),
            again: self.again,
            canary: self.canary.terms(),
            serve_while_copying: self.serve_while_copying,
            gates: self.gate.iter().fold(Gates::default(), |all, gates| all.with(gates)),
            checks: Checks {
                samples: self
                    .gate_samples
                    .as_deref()
                    .map_or(Ok(Vec::new()), Checks::read_samples)?,
                command: self.gate_command.clone(),
                time_max: Duration::from_millis(self.gate_time),
            },
        })
    }
}

/// How a version is sent through a topic.
#[derive(Debug, Args)]
pub struct ThroughOptions {
    /// Send the version through a topic of Kafka, from which the nodes fetch it
    #[arg(long, value_name = "kafka://HOST:PORT,…/TOPIC", conflicts_with = "upload")]
    through: Option<TopicAddress>,

    /// How Kafka is reached: a file with lines NAME=VALUE, properties of librdkafka; # begins a comment
    #[arg(long, value_name = "FILE", requires = "through")]
    kafka_config: Option<PathBuf>,
}

impl ThroughOptions {
    /// The topic, if one was named.
    pub fn topic(&self) -> anyhow::Result<Option<Topic>> {
        let Some(address) = self.through.clone() else {
            return Ok(None);
        };
        let properties = kafka_properties(self.kafka_config.as_deref())?;
        Ok(Some(Topic { address, properties }))
    }
}

/// The properties of librdkafka in a file, if one was named.
pub(super) fn kafka_properties(path: Option<&Path>) -> anyhow::Result<BTreeMap<String, String>> {
    let Some(path) = path else {
        return Ok(BTreeMap::new());
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path:?}"))?;
    let properties = parse_properties(&text)
        .map_err(|line| WrongUsage(format!("line {line} of {path:?} is no property: write NAME=VALUE")))?;
    Ok(properties)
}

/// The properties, or the number of the first line that is not `NAME=VALUE`.
fn parse_properties(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
            _ => Err(number),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_lines_with_names_and_values() {
        let text = "# TLS\nsecurity.protocol = ssl\n\nsasl.password=a=b # c\n";
        let expected = [("security.protocol", "ssl"), ("sasl.password", "a=b # c")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse_properties(text), Ok(expected.into()));
        assert_eq!(parse_properties("a=b\nssl"), Err(2));
        assert_eq!(parse_properties("=b"), Err(1));
    }
}
