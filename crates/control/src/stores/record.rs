//! What is remembered of a store: one entry of the metadata, written whole, so that a swap is one
//! write.

use fondaco_model::{PushEvent, PushState, StoreDefinition, VersionNumber, VersionSet};
use serde::{Deserialize, Serialize};

use crate::coordination::{Coordination, CoordinationError, EntryPath, Revision};
use crate::error::ControlError;

/// A store, its versions, and its last push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreRecord {
    pub(super) definition: StoreDefinition,
    /// The number of the store itself: see `StoreId`.
    pub(super) id: u16,
    pub(super) created_unix_ms: u64,
    pub(super) versions: VersionSet,
    pub(super) push: Option<PushRecord>,
}

/// A push, under way or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushRecord {
    /// The number that the version has, or would have had.
    pub version: VersionNumber,
    /// Where it comes from.
    pub source: String,
    /// How far it is.
    pub state: PushState,
    /// Why it failed.
    pub error: Option<String>,
    /// The bytes of all files.
    pub bytes_total: u64,
    /// How many records the version has.
    pub records: u64,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: Option<u64>,
}

impl PushRecord {
    /// Moves on. What cannot happen in this state is ignored, and logged: it has ended already.
    pub(super) fn advance(&mut self, event: PushEvent, now_unix_ms: u64) {
        match self.state.after(event) {
            Ok(state) => {
                self.state = state;
                self.ended_unix_ms = state.is_end().then_some(now_unix_ms);
            }
            Err(error) => tracing::error!(version = %self.version, %error, "push did not move"),
        }
    }
}

/// The path under which stores are remembered.
pub(super) fn stores_path() -> Result<EntryPath, CoordinationError> {
    EntryPath::new(["stores"])
}

fn path(name: &str) -> Result<EntryPath, CoordinationError> {
    EntryPath::new(["stores", name])
}

impl StoreRecord {
    pub(super) fn read(coordination: &dyn Coordination, name: &str) -> Result<Option<(Self, Revision)>, ControlError> {
        let path = path(name)?;
        let Some(entry) = coordination.read(&path)? else {
            return Ok(None);
        };
        let invalid = |reason: String| ControlError::InvalidMetadata {
            entry: path.to_string(),
            reason,
        };
        let record: Self = serde_json::from_slice(&entry.bytes).map_err(|e| invalid(e.to_string()))?;
        if record.definition.name.as_str() != name {
            return Err(invalid(format!("it is that of store {:?}", record.definition.name)));
        }
        Ok(Some((record, entry.revision)))
    }

    pub(super) fn write(
        &self,
        coordination: &dyn Coordination,
        expected: Option<Revision>,
    ) -> Result<Revision, ControlError> {
        let path = path(self.definition.name.as_str())?;
        let bytes = serde_json::to_vec(self).map_err(|e| ControlError::InvalidMetadata {
            entry: path.to_string(),
            reason: e.to_string(),
        })?;
        Ok(coordination.write(&path, &bytes, expected)?)
    }

    pub(super) fn delete(&self, coordination: &dyn Coordination, expected: Revision) -> Result<(), ControlError> {
        Ok(coordination.delete(&path(self.definition.name.as_str())?, expected)?)
    }
}
