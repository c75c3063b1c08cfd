//! The texts of `fondaco store` about streams of hybrid stores, and `fondaco store partition`.

use clap::Args;
use fondaco_api::{FailedStream, PoisonList, PoisonRecord, StreamStatus, VersionStream};
use fondaco_model::versioned::EngineKind;
use fondaco_model::{Acknowledge, Partitioner, StoreName, StreamChange, slot_of_key};
use fondaco_push::partition_count;
use serde::Serialize;

use crate::output::{self, table};

/// `fondaco store partition`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fondaco store partition counts item-1 item-2 --topic-partitions 8")]
pub struct PartitionOptions {
    /// The store; it need not exist
    name: StoreName,

    /// Keys of records, without the store's name
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    /// How many partitions the topic has: a power of two
    #[arg(long, value_name = "COUNT")]
    topic_partitions: u32,
}

/// The settings of a stream, in a line.
pub fn text(stream: &StreamChange) -> String {
    let time = |ms: Option<u64>| output::span(ms.unwrap_or(0));
    format!(
        "reads {}{}{}{}, from {} before each push; answers within {}; events may be {} late; engine {}\n{}{}",
        stream.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        match &stream.data_center {
            Some(Some(center)) => format!(", in data center {center}"),
            Some(None) | None => String::new(),
        },
        match stream.partitioner {
            Some(Partitioner::Store) => ", partitioned as the store",
            Some(Partitioner::Any) | None => "",
        },
        match &stream.registry {
            Some(Some(registry)) => format!(", with schemas of the registry {registry}"),
            Some(None) | None => String::new(),
        },
        time(stream.rewind_ms),
        time(stream.lag_ms),
        time(stream.grace_ms),
        stream.engine.unwrap_or(EngineKind::Log),
        match stream.compact_ms {
            None | Some(0) => String::new(),
            every => format!("puts events into a new version every {}\n", time(every)),
        },
        if stream.paused == Some(true) {
            "paused: no events are read\n"
        } else {
            ""
        }
    ) + &limits_text(stream)
}

/// The time to live, the quota of writes and when they are answered, as far as they are no defaults.
fn limits_text(stream: &StreamChange) -> String {
    let mut text = String::new();
    if stream.acknowledge == Some(Acknowledge::Applied) {
        text.push_str("writes are answered once reads see them\n");
    }
    if let Some(ttl_ms) = stream.ttl_ms.flatten() {
        text.push_str(&format!(
            "events and records live {}, in versions that are pushed from then on\n",
            output::span(ttl_ms)
        ));
    }
    if let Some(limit) = stream.write_keys_per_second.flatten() {
        text.push_str(&format!("at most {} records a second are read\n", output::count(limit)));
    }
    text
}

/// How far a node has read a stream.
pub fn progress_text(stream: &StreamStatus) -> String {
    let versions = stream.versions.iter().map(version_text);
    let texts = versions.chain(stream.failed.iter().map(failed_text));
    texts.collect::<String>() + &silent_text(&stream.silent)
}

/// Why a node cannot open the events of a version.
fn failed_text(failed: &FailedStream) -> String {
    let node = failed.node.map_or_else(String::new, |node| format!(" {node}"));
    let (version, error) = (failed.version, &failed.error);
    format!("version {version} on node{node}: its events cannot be opened: {error}\n")
}

/// That nodes did not answer.
fn silent_text(silent: &[u32]) -> String {
    let line = |node: &u32| format!("node {node} does not answer: what it has read is missing here\n");
    silent.iter().map(line).collect()
}

fn version_text(version: &VersionStream) -> String {
    let mut text = format!(
        "version {} on {}: {} partition(s) answer, {} key(s) have events, {}\n",
        version.version,
        version
            .node
            .map_or_else(|| "the node".to_owned(), |node| format!("node {node}")),
        version.partitions_ready,
        output::count(version.keys),
        lag_text(version)
    );
    if version.late + version.poison + version.unfit > 0 {
        let [late, poison, unfit] = [version.late, version.poison, version.unfit].map(output::count);
        text.push_str(&format!(
            "  {late} event(s) were too late, {poison} record(s) were no events, {unfit} update(s) did not fit\n"
        ));
    }
    if version.elsewhere > 0 {
        let elsewhere = output::count(version.elsewhere);
        text.push_str(&format!(
            "  {elsewhere} event(s) that were read belong to other nodes\n"
        ));
    }
    for lost in &version.lost {
        let (topic, partition, from, to) = (lost.topic, lost.partition, lost.from, lost.to);
        text.push_str(&format!(
            "  records {from} to {to} of partition {partition} of topic {topic} were gone before they were read: push a new version\n"
        ));
    }
    if version.held_back {
        text.push_str("  held back by the store's --write-keys-per-second\n");
    }
    if let Some(error) = &version.error {
        text.push_str(&format!("  {error}\n"));
    }
    text
}

/// How far behind a version is.
pub fn lag_text(version: &VersionStream) -> String {
    let behind: Option<u64> = version.partitions.iter().map(|partition| partition.lag_records).sum();
    let Some(behind) = behind else {
        return "not all partitions of the topic were read since the process began".to_owned();
    };
    let oldest = version.partitions.iter().map(|partition| partition.lag_ms).max();
    let age = match oldest {
        Some(ms) if behind > 0 => format!(", the last one read is {} old", output::span(ms)),
        _ => String::new(),
    };
    format!("{} record(s) behind{age}", output::count(behind))
}

/// Records that are no events.
pub fn poison_text(list: &PoisonList) -> String {
    if list.records.is_empty() {
        let all = format!("all records of {} that the nodes have read are events\n", list.source);
        return all + &silent_text(&list.silent);
    }
    let row = |record: &PoisonRecord| {
        let numbers = [
            record.version,
            record.topic.into(),
            record.partition.into(),
            record.offset,
        ];
        let numbers = numbers.map(|number| number.to_string());
        numbers.into_iter().chain([record.reason.clone()]).collect()
    };
    let rows: Vec<Vec<String>> = list.records.iter().map(row).collect();
    let header = ["VERSION", "TOPIC", "PARTITION", "OFFSET", "WHY"];
    format!("records of {} that are no events:\n\n", list.source)
        + &table(&header, &rows, &[true, true, true, true, false])
        + &silent_text(&list.silent)
}

/// The partition of a topic for a key.
#[derive(Debug, Serialize)]
pub struct KeyPartition {
    key: String,
    partition: u32,
}

impl PartitionOptions {
    /// Where the records of the keys belong.
    ///
    /// # Errors
    /// There cannot be so many partitions.
    pub fn partitions(&self) -> anyhow::Result<Vec<KeyPartition>> {
        let topic = partition_count(self.topic_partitions)?;
        let partition = |key: &String| KeyPartition {
            key: key.clone(),
            partition: topic.partition_of(slot_of_key(&self.name, key.as_bytes())).get(),
        };
        Ok(self.keys.iter().map(partition).collect())
    }
}

/// Where records belong, a line each.
pub fn partitions_text(found: &[KeyPartition]) -> String {
    let line = |found: &KeyPartition| format!("{} {}\n", found.partition, found.key);
    found.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use fondaco_model::slot_of_wire_key;

    use super::*;

    #[test]
    fn partitions_are_those_of_redis_clusters_checksum() {
        let found = |key: &str, topic_partitions| {
            let options = PartitionOptions {
                name: "counts".parse().unwrap(),
                keys: vec![key.to_owned()],
                topic_partitions,
            };
            options.partitions().map(|found| found[0].partition).ok()
        };
        // Its check value is 0x31C3, which is slot 12739.
        let tagged = "{123456789}:x";
        assert_eq!(
            [1, 8, 16384].map(|count| found(tagged, count)),
            [Some(0), Some(6), Some(12739)]
        );
        assert_eq!(found("x", 16384), Some(u32::from(slot_of_wire_key(b"counts:x").get())));
        assert_eq!(found("x", 12), None);
    }
}
