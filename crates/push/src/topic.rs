//! A topic of Kafka as the way of a version to the nodes: for nodes that reach Kafka and not the directory of the build.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use fondaco_admin::Client;
use fondaco_api::{StoreList, StoreResource};
use fondaco_model::{StoreName, StreamSource};
use fondaco_stream::{TopicAddress, partitions_of, send_version};

use crate::error::PushError;
use crate::observer::{Job, Note, Progress};

/// A topic that versions are sent through.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its brokers and its name.
    pub address: TopicAddress,
    /// The properties of librdkafka that the brokers ask for.
    pub properties: BTreeMap<String, String>,
}

impl Topic {
    /// Asks the brokers for the number of partitions of the topic.
    pub(crate) fn partitions(&self) -> Result<u32, PushError> {
        Ok(partitions_of(&self.address, &self.properties)?)
    }

    /// Refuses a topic with the events of a store of the cluster: nodes would take pieces of files for events.
    pub(crate) fn check(&self, client: &Client) -> Result<(), PushError> {
        let list: StoreList = client.get("/v1/stores")?;
        let is_of = |store: &&StoreResource| {
            let stream = store.stream.as_ref();
            let source = stream.and_then(|stream| stream.source.as_ref());
            matches!(source, Some(StreamSource::Kafka { topic, mirrored, .. }) if *topic == self.address.topic || mirrored.contains(&self.address.topic))
        };
        match list.stores.iter().find(is_of) {
            Some(store) => Err(PushError::Unfit(format!(
                "store {:?} has its events in a topic {:?}: send versions through a topic of another name",
                store.name, self.address.topic
            ))),
            None => Ok(()),
        }
    }

    /// Sends the version in a directory. Returns the URL from which nodes fetch it.
    pub(crate) fn send(&self, partitions: u32, dir: &Path, job: Job<'_>) -> Result<String, PushError> {
        let step = job.step();
        let began = Instant::now();
        let mut go_on = |bytes_sent: u64, bytes_total: u64| {
            step.show(Progress::Sending {
                bytes_sent,
                bytes_total,
                elapsed: began.elapsed(),
            });
            !job.is_cancelled()
        };
        let sent = send_version(&self.address, partitions, &self.properties, dir, &mut go_on);
        drop(step);
        let sent = match sent {
            Err(error) if job.is_cancelled() => return Err(PushError::Cancelled(error.to_string())),
            sent => sent?,
        };
        job.note(Note::Sent(&sent));
        Ok(sent.address.to_string())
    }

    /// The error for a version that was not sent completely, with the command that continues from the kept build.
    pub(crate) fn failed(&self, error: PushError, store: &StoreName, dir: &Path) -> PushError {
        error.within(format!(
            "store {store} did not get the version; the build is kept, try again: fondaco deploy {store} {} --through {}",
            dir.display(),
            self.address
        ))
    }
}
