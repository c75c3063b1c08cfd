//! Versions that travel through a topic of Kafka: to nodes that reach Kafka, and not the storage of the build.
//!
//! ```text
//! key                         value
//! fondaco/1/PUSH/start        what will follow, as JSON
//! fondaco/1/PUSH/FILE/PIECE   a piece of a file: PIECE counts from 0; all but the last have the same length
//! fondaco/1/PUSH/index/PIECE  where each file is, and how many records each partition has, as JSON
//! fondaco/1/PUSH/end          where the index is, as JSON
//! ```
//!
//! The files are those that the build wrote: sorted, with their indexes, the same for all replicas. Those of a partition of
//! the store are in one partition of the topic, with their pieces in order, perhaps with records of others between them.
//! So piece N of a file is N or more records after its first one, and a fetch that continues begins there. The end is
//! written once all else is acknowledged: its partition and offset name the version. A push that fails leaves records
//! without an end, which nothing refers to.
//!
//! Other producers may write to the topic, and its retention may delete records. So readers bound all that they read, and
//! a fetch verifies the files.

mod error;
mod read;
mod record;
mod send;

use std::fmt;
use std::str::FromStr;

use fondaco_model::StreamSource;

pub use error::VersionTopicError;
pub use read::{TopicFileReader, VersionReader};
pub use send::{Sent, partitions_of, send_version};

/// A topic, as `kafka://HOST:PORT,…/TOPIC`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicAddress {
    /// Some of the brokers: `host:port`, separated by commas.
    pub brokers: String,
    /// The topic.
    pub topic: String,
}

/// A version in a topic, as `kafka://HOST:PORT,…/TOPIC/PARTITION/OFFSET`: where its end is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionAddress {
    /// The topic.
    pub topic: TopicAddress,
    /// The partition of the end.
    pub partition: i32,
    /// The offset of the end.
    pub offset: u64,
}

impl fmt::Display for TopicAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka://{}/{}", self.brokers, self.topic)
    }
}

impl FromStr for TopicAddress {
    type Err = VersionTopicError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(StreamSource::Kafka {
                brokers,
                topic,
                mirrored,
            }) if mirrored.is_empty() => Ok(Self { brokers, topic }),
            _ => Err(VersionTopicError::NoAddress { found: text.to_owned() }),
        }
    }
}

impl VersionAddress {
    /// The version that a location names; `None` if the location is not in Kafka.
    ///
    /// # Errors
    /// [`VersionTopicError::NoAddress`]
    pub fn of(location: &str) -> Result<Option<Self>, VersionTopicError> {
        match location.starts_with("kafka://") {
            true => location.parse().map(Some),
            false => Ok(None),
        }
    }
}

impl fmt::Display for VersionAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

impl FromStr for VersionAddress {
    type Err = VersionTopicError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rest, offset) = text.rsplit_once('/')?;
            let (topic, partition) = rest.rsplit_once('/')?;
            Some(Self {
                topic: topic.parse().ok()?,
                partition: partition.parse().ok().filter(|partition| *partition >= 0)?,
                offset: offset.parse().ok().filter(|offset| *offset <= i64::MAX as u64)?,
            })
        };
        parse().ok_or_else(|| VersionTopicError::NoAddress { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_in_a_topic_is_its_text() {
        for text in ["kafka://b1:9092/versions/0/17", "kafka://b1:9092,[::1]:1/v.1/3/0"] {
            assert_eq!(VersionAddress::of(text).unwrap().unwrap().to_string(), text);
        }
        for text in [
            "kafka://b1:9092/versions",
            "kafka://b1:9092/versions/0",
            "kafka://b1:9092/versions/-1/0",
            "kafka://b1:9092/versions/0/-1",
            "kafka://b1:9092/versions/0/9223372036854775808",
            "kafka://b1/versions/0/1",
            "kafka://b1:9092/0/1",
        ] {
            let error = VersionAddress::of(text).unwrap_err();
            assert!(error.to_string().contains("/TOPIC/PARTITION/OFFSET"), "{error}");
        }
        assert_eq!(VersionAddress::of("s3://versions/0/1").unwrap(), None);
        assert!("log".parse::<TopicAddress>().is_err());
    }
}
