//! The state that all handles to one table of a durable engine share.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::EngineError;

/// An open table. Its number is not reused while the engine is open, even if another table gets the same name.
#[derive(Debug)]
pub(crate) struct OpenTable {
    name: String,
    number: u64,
    dropped: AtomicBool,
}

impl OpenTable {
    pub(crate) fn new(name: &str, number: u64) -> Self {
        Self {
            name: name.to_owned(),
            number,
            dropped: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Fails if the table was dropped.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(self.gone());
        }
        Ok(())
    }

    /// The error for a dropped table.
    pub(crate) fn gone(&self) -> EngineError {
        let table = self.name.clone();
        EngineError::NoTable { table }
    }
}
