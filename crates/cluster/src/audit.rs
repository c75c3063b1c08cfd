//! The changes that people make through control ports: the last ones in coordination, all of them in the log of the process
//! that carries them out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_api::AuditEntry;
use fondaco_coordination::{Coordination, CoordinationError};

use crate::error::ClusterError;
use crate::layout::AUDIT;

/// How many changes are kept, and how many bytes of them: an entry of the coordination service has a limit.
const KEPT_MAX: usize = 500;
const KEPT_BYTES_MAX: usize = 500_000;

/// How often a write is tried when other processes are faster.
const ATTEMPTS_MAX: u32 = 20;

/// Writes down what people change.
pub struct Audit {
    coordination: Arc<dyn Coordination>,
    /// How many changes this process has written down.
    added: AtomicU64,
}

impl Audit {
    /// The record of changes in this coordination service.
    pub fn new(coordination: Arc<dyn Coordination>) -> Self {
        let added = AtomicU64::new(0);
        Self { coordination, added }
    }

    /// How many changes this process has written down.
    pub fn added(&self) -> u64 {
        self.added.load(Relaxed)
    }

    /// The last changes, the latest last.
    pub fn read(&self) -> Result<VecDeque<AuditEntry>, ClusterError> {
        let entry = self.coordination.read(&AUDIT.parse()?)?;
        Ok(entry.map(|entry| parse(&entry.bytes)).unwrap_or_default())
    }

    /// Adds a change. It is in the log, whether or not it can be written down.
    pub fn add(&self, entry: &AuditEntry) {
        tracing::info!(
            target: "audit",
            user = entry.user, role = entry.role, method = entry.method, path = entry.path, status = entry.status,
            "changed by a person"
        );
        for _ in 0..ATTEMPTS_MAX {
            match self.try_to_add(entry) {
                Err(ClusterError::Coordination(CoordinationError::Conflict { .. })) => {}
                Err(error) => return tracing::warn!(%error, "a change cannot be recorded in the coordination service"),
                Ok(()) => {
                    self.added.fetch_add(1, Relaxed);
                    return;
                }
            }
        }
    }

    fn try_to_add(&self, entry: &AuditEntry) -> Result<(), ClusterError> {
        let path = AUDIT.parse()?;
        let known = self.coordination.read(&path)?;
        let mut entries = known.as_ref().map(|known| parse(&known.bytes)).unwrap_or_default();
        entries.push_back(entry.clone());
        let bytes = trimmed(entries).map_err(ClusterError::invalid_metadata(AUDIT))?;
        self.coordination
            .write(&path, &bytes, known.map(|known| known.revision))?;
        Ok(())
    }
}

/// The latest changes, as they are written down.
fn trimmed(mut entries: VecDeque<AuditEntry>) -> Result<Vec<u8>, serde_json::Error> {
    while entries.len() > KEPT_MAX {
        entries.pop_front();
    }
    loop {
        let bytes = serde_json::to_vec(&entries)?;
        if bytes.len() <= KEPT_BYTES_MAX || entries.len() <= 1 {
            return Ok(bytes);
        }
        // A part at once: all are written again each time.
        entries.drain(..entries.len().div_ceil(8));
    }
}

/// The changes that were written down; none if they cannot be read, so that the record is begun anew.
fn parse(bytes: &[u8]) -> VecDeque<AuditEntry> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_changes_leave_room_for_later_ones() {
        let entry = |number: u64| AuditEntry {
            at_unix_ms: number,
            user: "vera".to_owned(),
            role: "operator".to_owned(),
            method: "POST".to_owned(),
            path: "/".repeat(64 << 10),
            status: 404,
            note: String::new(),
        };
        let bytes = trimmed((0..100).map(entry).collect()).unwrap();
        assert!(bytes.len() <= KEPT_BYTES_MAX);
        let kept = parse(&bytes);
        assert!(kept.len() > 3);
        assert_eq!(kept.back().unwrap().at_unix_ms, 99);
    }
}
