//! The offsets at which nodes have begun to read the stream of a version. If the topic has deleted records, only they tell whether
//! some of these were on top of the version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_api::StreamStatus;
use fondaco_model::VersionNumber;
use fondaco_stream::{BegunElsewhere, StreamError};
use parking_lot::Mutex;

use crate::follow::Cluster;

/// For how long nodes that do not answer are asked again.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long an answer is used: long enough for all partitions of the topic to begin.
const KNOWN_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Asked {
    first: Option<Instant>,
    known: Option<(Instant, BTreeMap<u32, u64>)>,
}

/// Asks the cluster at which offsets its nodes have begun to read a topic for a version.
pub(super) fn begun_on_nodes(cluster: Arc<Cluster>, version: VersionNumber, topic: String) -> BegunElsewhere {
    let asked = Mutex::<Asked>::default();
    Box::new(move |partition| {
        let unanswered = |reason: String| StreamError::Unavailable {
            topic: topic.clone(),
            reason: format!("the nodes are asked where they have begun to read it: {reason}"),
        };
        let mut asked = asked.lock();
        let first = *asked.first.get_or_insert_with(Instant::now);
        if let Some((at, begun)) = &asked.known
            && at.elapsed() < KNOWN_FOR
        {
            return Ok(begun.get(&partition).copied());
        }
        let path = format!("/v1/stores/{}/stream", cluster.store());
        let answer = cluster.ask(|client| client.get::<StreamStatus>(&path));
        let answer = answer.map_err(|error| unanswered(error.to_string()))?;
        if !answer.silent.is_empty() {
            if first.elapsed() < PATIENCE {
                return Err(unanswered(format!("nodes {:?} do not answer", answer.silent)));
            }
            tracing::warn!(store = %cluster.store(), %version, nodes = ?answer.silent, "nodes do not say where they have begun to read the stream: if the topic has deleted events since the push of the version, push a new one");
        }
        let mut begun = BTreeMap::new();
        for read in answer.versions.into_iter().filter(|read| read.version == version.get()) {
            for (partition, offset) in read.begun_offsets {
                let known = begun.entry(partition).or_insert(offset);
                *known = offset.min(*known);
            }
        }
        let found = begun.get(&partition).copied();
        asked.known = Some((Instant::now(), begun));
        Ok(found)
    })
}
