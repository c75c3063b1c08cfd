//! The notes about a run, and the first rule that it broke.

use std::collections::VecDeque;
use std::fmt::Display;

use super::outcome::Violation;

/// How many of the last notes are kept.
const NOTES_MAX: usize = 2_000;

#[derive(Debug)]
pub(crate) struct Notes {
    /// Whether there are any.
    is_traced: bool,
    notes: VecDeque<String>,
    broken: Option<String>,
}

impl Notes {
    pub(crate) fn new(is_traced: bool) -> Self {
        Self {
            is_traced,
            notes: VecDeque::new(),
            broken: None,
        }
    }

    /// Adds a note, if the run is traced.
    pub(crate) fn add(&mut self, now: impl Display, what: impl FnOnce() -> String) {
        if self.is_traced {
            if self.notes.len() == NOTES_MAX {
                self.notes.pop_front();
            }
            self.notes.push_back(format!("{now:>11} {}", what()));
        }
    }

    /// Records a broken rule; only the first one counts.
    pub(crate) fn broke(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Whether a rule was broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// The broken rule with the notes before it, if there is one.
    pub(crate) fn violation(&mut self, seed: u64, at_ms: u64) -> Option<Violation> {
        let what = self.broken.take()?;
        let notes = std::mem::take(&mut self.notes).into();
        Some(Violation {
            seed,
            at_ms,
            what,
            notes,
        })
    }
}
