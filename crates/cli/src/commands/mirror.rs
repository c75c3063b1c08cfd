//! `fondaco mirror`: the changes of a store to a topic of Kafka.

use std::path::PathBuf;

use clap::Args;
use fondaco_export::{Mirror, MirrorReport};
use fondaco_model::StoreName;
use fondaco_stream::TopicAddress;

use super::follow::begin;
use super::target_options::kafka_properties;
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};

/// `fondaco mirror`.
#[derive(Debug, Args)]
#[command(after_help = "\
Runs until it is stopped. A mirror that was stopped or killed continues where the topic ends: consumers that read what is committed get each
change once, of a versioned store at least once.

Example:
  fondaco mirror pymk kafka://kafka-1:9092/pymk-changes")]
pub struct MirrorOptions {
    /// The store
    store: StoreName,

    /// The topic, one of its own: each change is a message with its key, without a value for a deletion
    #[arg(value_name = "kafka://HOST:PORT,…/TOPIC")]
    topic: TopicAddress,

    /// Where to begin if the topic is empty: as for fondaco follow
    #[arg(long, value_name = "PLACE", default_value = "beginning", value_parser = begin)]
    from: String,

    /// Begin there although the topic has messages
    #[arg(long)]
    restart: bool,

    /// End when there are no more changes for now
    #[arg(long)]
    until_now: bool,

    /// How Kafka is reached: a file with lines NAME=VALUE, properties of librdkafka; # begins a comment
    #[arg(long, value_name = "FILE")]
    kafka_config: Option<PathBuf>,

    #[command(flatten)]
    node: ControlPort,
}

/// Mirrors a store.
pub fn mirror(options: MirrorOptions, output: &Output) -> anyhow::Result<()> {
    let mirror = Mirror {
        store: options.store,
        endpoint: options.node.endpoint(),
        topic: options.topic,
        properties: kafka_properties(options.kafka_config.as_deref())?,
        from: options.from,
        restart: options.restart,
        until_now: options.until_now,
    };
    let interrupt = Interrupt::listen()?;
    let mut told = String::new();
    let mut note = |reason: &str| {
        if told != reason {
            output.note(&format!("waiting: {reason}"));
            told = reason.to_owned();
        }
    };
    let report = mirror.run(interrupt.token(), &mut note)?;
    output.result(&report, |MirrorReport { changes, deletions, .. }| {
        let (changes, deletions) = (output::count(*changes), output::count(*deletions));
        format!(
            "{changes} changes are in {}, {deletions} of them deletions\n",
            mirror.topic
        )
    })
}
