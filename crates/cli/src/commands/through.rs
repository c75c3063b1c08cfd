//! `--through` of `fondaco push` and `deploy`: sends a version through a topic of Kafka, for nodes that reach Kafka and not
//! the directory of the build.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use fondaco_api::{StoreList, StoreResource};
use fondaco_model::StoreName;
use fondaco_stream::{TopicAddress, partitions_of, send_version};

use super::WrongUsage;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Display, rate};
use fondaco_admin::Client;

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

/// A topic that versions can be sent through.
pub struct Through {
    topic: TopicAddress,
    properties: BTreeMap<String, String>,
    partitions: u32,
}

impl ThroughOptions {
    /// The topic, if one was named. Asks its brokers whether it exists.
    pub fn find(&self) -> anyhow::Result<Option<Through>> {
        let Some(topic) = self.through.clone() else {
            return Ok(None);
        };
        let properties = match &self.kafka_config {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path:?}"))?;
                parse_properties(&text)
                    .map_err(|line| WrongUsage(format!("line {line} of {path:?} is no property: write NAME=VALUE")))?
            }
            None => BTreeMap::new(),
        };
        let partitions = partitions_of(&topic, &properties)?;
        Ok(Some(Through {
            topic,
            properties,
            partitions,
        }))
    }
}

impl Through {
    /// Refuses a topic with the events of a store of the cluster: nodes would take pieces of files for events.
    pub fn check(&self, client: &Client) -> anyhow::Result<()> {
        let list: StoreList = client.get("/v1/stores")?;
        let is_of = |store: &&StoreResource| {
            let stream = store.stream.as_ref();
            let address = stream.and_then(|stream| stream.source.parse::<TopicAddress>().ok());
            address.is_some_and(|address| address.topic == self.topic.topic)
        };
        match list.stores.iter().find(is_of) {
            Some(store) => bail!(
                "store {:?} has its events in a topic {:?}: send versions through a topic of another name",
                store.name,
                self.topic.topic
            ),
            None => Ok(()),
        }
    }

    /// Sends the version in a directory. Returns the URL from which nodes fetch it.
    pub fn send(&self, dir: &Path, interrupt: &Interrupt, output: &Output) -> anyhow::Result<String> {
        let mut display = Display::new(output.is_quiet());
        let began = Instant::now();
        let mut go_on = |sent: u64, total: u64| {
            let text = format!(
                "{} of {}, {}/s",
                output::bytes(sent),
                output::bytes(total),
                output::bytes(rate(sent, began.elapsed()))
            );
            display.show("sending", sent as f64 / total.max(1) as f64, &text);
            !interrupt.is_asked()
        };
        let sent = send_version(&self.topic, self.partitions, &self.properties, dir, &mut go_on)?;
        drop(display);
        output.note(&format!(
            "sent {} in {} records: {}",
            output::bytes(sent.bytes),
            output::count(sent.topic_records),
            sent.address
        ));
        Ok(sent.address.to_string())
    }

    /// The error for a version that was not sent completely, with how to go on if the build is kept.
    pub fn failed(&self, error: anyhow::Error, store: &StoreName, dir: &Path) -> anyhow::Error {
        error.context(format!(
            "store {store} did not get the version; the build is kept, try again: fondaco deploy {store} {} --through {}",
            dir.display(),
            self.topic
        ))
    }
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
