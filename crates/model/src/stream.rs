//! The stream of a hybrid store: where its events come from, and how they count.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data_center::{CENTERS_MAX, DataCenter, center_of};
use crate::registry_address::RegistryAddress;
use crate::store_option::store_options;
use crate::text_form::stored_as_text;
use crate::versioned::{EngineKind, VersionedSettings};
use crate::word::words;

store_options! {
    /// The settings of a hybrid store's stream.
    #[serde(deny_unknown_fields)]
    record StreamSettings {}

    /// The options of a new stream, or a change of one. Missing options have their default, or stay.
    change StreamChange "stream." {}

    /// Where events come from: a topic, kafka://HOST:PORT,…/TOPIC, with the copies of other data centers' topics behind it, if there
    /// are any: TOPIC,CENTER.TOPIC,…; or log, or log:PARTITIONS, the log of fondaco dev, and of a server without ZooKeeper.
    "stream" source: StreamSource, OptionValue::text::<StreamSource>("SOURCE"), [Hybrid] => fixed;

    /// How long before the start of a push its version reads the stream from; 1day by default.
    "rewind" rewind_ms: u64, Time(0, u64::MAX), [Hybrid];

    /// How old the newest event that a version has read may be when it begins to answer, if there are more; 10s by default.
    "max-lag" lag_ms: u64, Time(0, u64::MAX), [Hybrid];

    /// How much later than it happened an event may be logged; later ones do not count; 7days by default.
    "grace" grace_ms: u64, Time(0, u64::MAX), [Hybrid] => fixed;

    /// The name of this data center, for a stream of several: at equal times the event of the greater name counts; or none, the default.
    "data-center" data_center: Option<DataCenter> [serde(default, skip_serializing_if = "Option::is_none")],
    OptionValue::text::<DataCenter>("NAME"), [Hybrid] or "none" => fixed;

    /// How much later than the time of its record an event may have happened; later ones are no events; 1day by default.
    "max-clock-ahead" clock_ahead_ms: u64 [serde(default = "a_day", skip_serializing_if = "is_a_day")], Time(0, DAY_MS), [Hybrid] => fixed;

    /// Where nodes keep the events: log, the default, or disk.
    "engine" engine: EngineKind, Word("ENGINE", EngineKind::WORDS), [Hybrid] => fixed;

    /// How records are assigned to the partitions of the topic: any, the default, which is unknown to nodes, so that they read
    /// all; or store, as fondaco store partition says, so that each node reads only what it needs.
    "partitioner" partitioner: Partitioner [serde(default, skip_serializing_if = "Partitioner::is_any")],
    Word("PARTITIONER", Partitioner::WORDS), [Hybrid] => fixed;

    /// The registry of schemas whose numbers are in front of the values of events, as Confluent's serializers write them:
    /// http://HOST:PORT, with a path if it has one, and more addresses after commas; or none, the default: values are as the store keeps them.
    "registry" registry: Option<RegistryAddress> [serde(default, skip_serializing_if = "Option::is_none")],
    OptionValue::text::<RegistryAddress>("URL"), [Hybrid] or "none" => fixed;

    /// Whether nodes read no events for now.
    "paused" paused: bool [serde(default, rename = "is_paused", skip_serializing_if = "std::ops::Not::not")], Bool, [Hybrid];

    /// How long an event lives from its event time on, and a pushed record from the time of its version on; 0, the default, is for
    /// ever. It applies to versions that are pushed from then on.
    "ttl" ttl_ms: Option<u64> [serde(default, skip_serializing_if = "Option::is_none")],
    Time(1, VersionedSettings::TIME_MS_MAX), [Hybrid] or "0";

    /// How many records of the topic are read per second, once a version answers, and how many events the control port accepts; 0,
    /// the default, is no limit.
    "write-keys-per-second" write_keys_per_second: Option<u64> [serde(default, skip_serializing_if = "Option::is_none")],
    Count(1, u64::MAX), [Hybrid] or "0";

    /// When a write of a Redis client is answered: logged, the default, once the brokers have the event; or applied, once reads
    /// through the same process see it, too.
    "acknowledge" acknowledge: Acknowledge [serde(default, skip_serializing_if = "Acknowledge::is_default")],
    Word("ACKNOWLEDGE", Acknowledge::WORDS), [Hybrid];

    /// Once events on top of a version span this time, a node puts them into a new version, as fondaco store compact does; 0,
    /// the default, is never.
    "compact-every" compact_ms: u64 [serde(default, skip_serializing_if = "is_zero")], Time(0, u64::MAX), [Hybrid];
}

words! {
    /// The assignment of records to partitions of a topic.
    Partitioner "partitioner":
    /// It is not known: nodes read all partitions.
    #[default]
    Any = "any",
    /// Those whose key has one of the partition's slots, which are split evenly as those of a store are: nodes read the
    /// partitions that have slots of theirs.
    Store = "store",
}

words! {
    /// When a write of a Redis client to a hybrid store is answered.
    Acknowledge "acknowledgement of writes":
    /// Once the brokers have acknowledged the event.
    #[default]
    Logged = "logged",
    /// Once the event was applied, besides, so that reads through the same process see it.
    Applied = "applied",
}

impl Acknowledge {
    /// Whether it is the default: records leave it out then.
    pub fn is_default(&self) -> bool {
        *self == Self::Logged
    }
}

impl Partitioner {
    fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

const fn a_day() -> u64 {
    StreamSettings::CLOCK_AHEAD_MS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_a_day(number: &u64) -> bool {
    *number == StreamSettings::CLOCK_AHEAD_MS
}

/// Where the events of a store come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StreamSource {
    /// The log inside a process that is a whole cluster, with this number of partitions.
    Log(u32),
    /// A topic of Kafka.
    Kafka {
        /// Some of its brokers: `host:port`, separated by commas.
        brokers: String,
        /// The topic, to which events of this data center are written.
        topic: String,
        /// The copies of other data centers' topics with this name: `CENTER.TOPIC`.
        mirrored: Vec<String>,
    },
}

/// The text names no source of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown source of events {found:?}: use kafka://HOST:PORT,…/TOPIC, or kafka://HOST:PORT,…/TOPIC,CENTER.TOPIC,… with the copies of \
     other data centers' topics, log, or log:PARTITIONS with 1 to {PARTITIONS_MAX}"
)]
pub struct StreamSourceError {
    /// The text.
    pub found: String,
}

/// The most partitions of a log.
const PARTITIONS_MAX: u32 = 1024;
const PARTITIONS_DEFAULT: u32 = 4;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl StreamSettings {
    /// How much later than its record an event may be, in milliseconds, unless the store says otherwise.
    pub const CLOCK_AHEAD_MS: u64 = DAY_MS;

    /// The settings for a source, with all defaults: a day of rewind, ten seconds of lag, a week of grace, and events in a log
    /// on disk.
    pub fn of(source: StreamSource) -> Self {
        Self {
            source,
            rewind_ms: DAY_MS,
            lag_ms: 10_000,
            grace_ms: 7 * DAY_MS,
            data_center: None,
            clock_ahead_ms: Self::CLOCK_AHEAD_MS,
            engine: EngineKind::Log,
            partitioner: Partitioner::Any,
            registry: None,
            paused: false,
            ttl_ms: None,
            write_keys_per_second: None,
            acknowledge: Acknowledge::Logged,
            compact_ms: 0,
        }
    }

    /// The settings after changes.
    #[must_use]
    pub fn with(mut self, change: &StreamChange) -> Self {
        self.apply(change);
        self
    }

    /// Checks that a hybrid store can have these settings.
    ///
    /// # Errors
    /// An engine that does not keep the events, a partitioner that the source does not have, or a data center that does not belong to it.
    pub fn check(&self) -> Result<(), String> {
        let centers = self.source.other_centers();
        match &self.data_center {
            None if !centers.is_empty() => {
                return Err("no name for this data center, and its stream has several: add --data-center NAME, as MirrorMaker calls it".to_owned());
            }
            Some(center) if centers.is_empty() => {
                return Err(format!(
                    "data center {center} for a stream of one: leave it out, or add the copies of other data centers' topics"
                ));
            }
            Some(center) if centers.contains(center) => {
                return Err(format!(
                    "a copy of the topic of {center}, which is this data center: leave it out, or correct --data-center"
                ));
            }
            Some(_) | None => {}
        }
        if let (StreamSource::Log(_), Partitioner::Store) = (&self.source, self.partitioner) {
            return Err(
                "partitioner store for a log, which has its own: leave it out, or read a topic of Kafka".to_owned(),
            );
        }
        if let (StreamSource::Log(_), Some(_)) = (&self.source, &self.registry) {
            return Err(
                "a registry is for topics of Kafka: leave it out, and register schemas of the store itself".to_owned(),
            );
        }
        match self.engine {
            EngineKind::Disk | EngineKind::Log => Ok(()),
            other => Err(format!("engine {other} for the events of a stream: use disk or log")),
        }
    }
}

impl StreamSettings {
    /// The rank of the data center of each topic, from 1 on in the order of their names: the same in all of them. Empty if there is one topic.
    pub fn center_ranks(&self) -> Vec<u8> {
        let Some(own) = &self.data_center else {
            return Vec::new();
        };
        let centers = [vec![own.clone()], self.source.other_centers()].concat();
        // There are few.
        let rank = |center| centers.iter().filter(|other| *other <= center).count() as u8;
        centers.iter().map(rank).collect()
    }
}

impl StreamSource {
    /// The data centers whose topics are mirrored, in the order of the topics.
    fn other_centers(&self) -> Vec<DataCenter> {
        match self {
            Self::Log(_) => Vec::new(),
            Self::Kafka { topic, mirrored, .. } => mirrored.iter().filter_map(|copy| center_of(copy, topic)).collect(),
        }
    }

    fn kafka(text: &str) -> Option<Self> {
        let (brokers, topics) = text.strip_prefix("kafka://")?.split_once('/')?;
        let mut topics = topics.split(',').map(str::to_owned);
        let source = Self::Kafka {
            brokers: brokers.to_owned(),
            topic: topics.next().filter(|topic| is_topic(topic))?,
            mirrored: topics.collect(),
        };
        let Self::Kafka { mirrored, .. } = &source else {
            return None;
        };
        let mut centers = source.other_centers();
        centers.sort_unstable();
        centers.dedup();
        let is_valid = centers.len() == mirrored.len()
            && centers.len() < CENTERS_MAX
            && mirrored.iter().all(|copy| is_topic(copy));
        (is_valid && brokers.split(',').all(is_address)).then_some(source)
    }
}

impl fmt::Display for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(partitions) => write!(f, "log:{partitions}"),
            Self::Kafka {
                brokers,
                topic,
                mirrored,
            } => {
                write!(f, "kafka://{brokers}/{topic}")?;
                mirrored.iter().try_for_each(|copy| write!(f, ",{copy}"))
            }
        }
    }
}

impl FromStr for StreamSource {
    type Err = StreamSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(kafka) = Self::kafka(text) {
            return Ok(kafka);
        }
        let partitions = match text.split_once(':') {
            None if text == "log" => Some(PARTITIONS_DEFAULT),
            Some(("log", number)) => number.parse().ok(),
            _ => None,
        };
        let partitions = partitions.filter(|partitions| (1..=PARTITIONS_MAX).contains(partitions));
        let found = || StreamSourceError { found: text.to_owned() };
        partitions.map(Self::Log).ok_or_else(found)
    }
}

/// Whether it is a host with a port.
fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Whether Kafka allows this name.
fn is_topic(text: &str) -> bool {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    (1..=249).contains(&text.len()) && text.chars().all(is_allowed) && text != "." && text != ".."
}

stored_as_text!(StreamSource, StreamSourceError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_its_text() {
        let kafka = "kafka://b1:9092,[::1]:1/events.v1";
        for (text, source) in [
            ("log", "log:4"),
            ("log:1", "log:1"),
            ("log:1024", "log:1024"),
            (kafka, kafka),
            ("kafka://b1:1/a,west.a,x.south.a", "kafka://b1:1/a,west.a,x.south.a"),
        ] {
            assert_eq!(text.parse::<StreamSource>().unwrap().to_string(), source);
        }
        let kafka = [
            "kafka://b1:9092",
            "kafka://b1/t",
            "kafka://b1:9092/",
            "kafka://b1:9092,/t",
            "kafka://b1:1/a/b",
            "kafka://b1:1/a,b",
            "kafka://b1:1/a,.a",
            "kafka://b1:1/a,west.b",
            "kafka://b1:1/a,west.a,south.west.a",
        ];
        for text in ["", "logs", "log:", "log:0", "log:1025", "log:x"].iter().chain(&kafka) {
            let error = text.parse::<StreamSource>().unwrap_err();
            assert!(error.to_string().contains("log:PARTITIONS"), "{error}");
        }
    }
    #[test]
    fn data_centers_are_ranked_alike_in_each_of_them() {
        let settings = |source: &str, center: Option<&str>| StreamSettings {
            data_center: center.map(|center| center.parse().unwrap()),
            ..StreamSettings::of(source.parse().unwrap())
        };
        let ranks = |source: &str, center| settings(source, Some(center)).center_ranks();
        assert_eq!(ranks("kafka://b:1/a,west.a,north.a", "east"), [1, 3, 2]);
        assert_eq!(ranks("kafka://b:1/a,north.a,east.a", "west"), [3, 2, 1]);
        assert!(settings("kafka://b:1/a", None).center_ranks().is_empty());
        for (source, center, part) in [
            ("kafka://b:1/a,west.a", None, "--data-center"),
            ("kafka://b:1/a,west.a", Some("west"), "correct"),
            ("kafka://b:1/a", Some("west"), "leave it out"),
        ] {
            let error = settings(source, center).check().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(settings("kafka://b:1/a,west.a", Some("east")).check(), Ok(()));
    }
}
