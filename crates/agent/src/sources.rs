//! Where the files of a version are that was built elsewhere: in a location, or in a topic of Kafka; and whether there is a
//! topic.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use fondaco_fetch::{FetchSource, LocationSource, PageCache, SourceError};
use fondaco_format::{MANIFEST_FILE, Manifest};
use fondaco_model::StreamSource;
use fondaco_storage::Location;
use fondaco_stream::{KafkaCluster, Source as _, TopicFileReader, VersionAddress, VersionReader, VersionTopicError};

use crate::config::KafkaConfig;
use crate::error::AgentError;

/// The files of the version at a path or a URL.
///
/// # Errors
/// It is neither a location nor a version in a topic.
pub(crate) fn built_at(source: &str, kafka: &KafkaConfig) -> Result<Arc<dyn FetchSource>, AgentError> {
    Ok(match VersionAddress::of(source)? {
        Some(address) => Arc::new(TopicSource(VersionReader::new(address, &kafka.0))),
        None => Arc::new(LocationSource::new(absolute(source.parse()?)?)),
    })
}

/// A relative path would mean something else in another process.
fn absolute(location: Location) -> Result<Location, AgentError> {
    match location.local_path() {
        Some(path) => std::path::absolute(path)
            .map(Location::local)
            .map_err(AgentError::io("resolve", path)),
        None => Ok(location),
    }
}

/// Why events cannot be read from a source, as its brokers say; `None` if they can, or if the source is the log of this process.
pub fn topic_problem(source: &StreamSource, kafka: &KafkaConfig) -> Option<String> {
    match source {
        StreamSource::Log(_) => None,
        StreamSource::Kafka {
            brokers,
            topic,
            mirrored,
        } => {
            let cluster = Arc::new(KafkaCluster::new(brokers, &kafka.0));
            let counted = [topic]
                .into_iter()
                .chain(mirrored)
                .map(|topic| cluster.topic(topic).partitions());
            counted.filter_map(Result::err).next().map(|error| error.to_string())
        }
    }
}

/// A version in a topic.
struct TopicSource(VersionReader);

impl FetchSource for TopicSource {
    fn name(&self) -> String {
        self.0.address().to_string()
    }

    fn local_dir(&self) -> Option<&Path> {
        None
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        let bytes = self.0.read_whole(file, bytes_max).map_err(source_error)?;
        // One that cannot be parsed is refused by the caller.
        if file == MANIFEST_FILE
            && let Ok(manifest) = Manifest::from_bytes(&bytes)
        {
            self.0.check(&manifest).map_err(source_error)?;
        }
        Ok(bytes)
    }

    fn open(&self, file: &str, offset: u64, _: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        let reader = self.0.open(file, offset).map_err(source_error)?;
        Ok(Box::new(FileOfTopic(reader)))
    }
}

/// A file of a version in a topic, with errors as a fetch knows them.
struct FileOfTopic(TopicFileReader);

impl Read for FileOfTopic {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_some(buffer).map_err(|error| source_error(error).into())
    }
}

fn source_error(error: VersionTopicError) -> SourceError {
    match error {
        VersionTopicError::NoFile { .. } => SourceError::Missing,
        error if error.may_pass() => SourceError::Failed(io::Error::other(error)),
        error => SourceError::Unusable {
            reason: error.to_string(),
        },
    }
}
