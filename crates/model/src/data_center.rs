//! Names of data centers whose topics are mirrored to one another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;

/// A data center, by the name that MirrorMaker has for its Kafka.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DataCenter(String);

/// The text names no data center.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown data center {found:?}: use 1 to {NAME_BYTES_MAX} letters, digits, underscores and hyphens, as MirrorMaker calls the cluster"
)]
pub struct DataCenterError {
    /// The text.
    pub found: String,
}

const NAME_BYTES_MAX: usize = 64;

/// The most data centers of a stream: an overlay keeps four bits for that of a value.
pub(crate) const CENTERS_MAX: usize = 15;

impl fmt::Display for DataCenter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DataCenter {
    type Err = DataCenterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        match (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_allowed) {
            true => Ok(Self(text.to_owned())),
            false => Err(DataCenterError { found: text.to_owned() }),
        }
    }
}

stored_as_text!(DataCenter, DataCenterError);

/// The data center where the events of a copy of a topic were written: `west.TOPIC`, or `south.west.TOPIC` of a copy of a copy.
pub(crate) fn center_of(copy: &str, topic: &str) -> Option<DataCenter> {
    let centers = copy.strip_suffix(topic)?.strip_suffix('.')?;
    centers.rsplit('.').next()?.parse().ok()
}
