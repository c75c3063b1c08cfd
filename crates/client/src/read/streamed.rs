//! Answers that are handed out while others are still awaited, in the order in which they come.
//!
//! The values of a store are from one version here, too: once an answer was handed out, all other keys are read at the
//! versions that the request has then. Keys that no node has at that version any more fail.

use bytes::Bytes;

use super::machine::Read;
use super::reply::PinnedStore;
use super::value_budget::HeldBudget;
use crate::error::ClientError;

/// The answers of a read that are to be handed out.
#[derive(Debug, Default)]
pub(super) struct HandingOut {
    /// Keys whose answers came, and were not handed out yet.
    fresh: Vec<u32>,
    /// Whether answers were handed out: no version changes any more.
    pub(super) has_begun: bool,
}

impl HandingOut {
    /// Answers of some keys do not count any more.
    pub(super) fn forget(&mut self, is_of: impl Fn(usize) -> bool) {
        debug_assert!(!self.has_begun);
        self.fresh.retain(|&key| !is_of(key as usize));
    }
}

/// Answers of a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The answers, each with the index of its key.
    pub answers: Vec<(usize, Result<Option<Bytes>, ClientError>)>,
    /// The share of the memory limit that these values have: drop it with them.
    pub room: HeldBudget,
}

impl Read {
    /// The same read, whose answers are [taken](Self::take_fresh) as they come.
    pub fn streamed(mut self) -> Self {
        let keys = self.states.iter().enumerate();
        let answered = keys.filter(|(_, state)| state.answer.is_some());
        self.handing_out = Some(HandingOut {
            fresh: answered.map(|(key, _)| key as u32).collect(),
            has_begun: false,
        });
        self
    }

    #[inline]
    pub(super) fn note_fresh(&mut self, key: usize) {
        if let Some(handing_out) = &mut self.handing_out {
            handing_out.fresh.push(key as u32);
        }
    }

    /// How many answers have come that were not taken.
    pub fn fresh(&self) -> usize {
        self.handing_out
            .as_ref()
            .map_or(0, |handing_out| handing_out.fresh.len())
    }

    /// Takes the answers that came since the last call.
    pub fn take_fresh(&mut self) -> Chunk {
        let Some(handing_out) = &mut self.handing_out else {
            return Chunk::default();
        };
        handing_out.has_begun = true;
        let mut bytes = 0;
        let fresh = std::mem::take(&mut handing_out.fresh);
        let take = |key: u32| {
            // It stays answered.
            let answer = self.states[key as usize].answer.replace(Ok(None));
            let answer = answer.unwrap_or(Err(ClientError::Timeout { deadline_ms: 0 }));
            if let Ok(Some(value)) = &answer {
                bytes += value.len();
            }
            (key as usize, answer)
        };
        let answers = fresh.into_iter().map(take).collect();
        Chunk {
            answers,
            room: self.room.split(bytes),
        }
    }

    /// The error that the whole request fails with.
    pub fn failure(&self) -> Option<&ClientError> {
        self.failed.as_ref()
    }

    /// The stores of the request, with the versions that they are read at; those may change until answers are taken.
    pub fn stores(&self) -> impl Iterator<Item = PinnedStore> + '_ {
        self.parts.iter().map(PinnedStore::of)
    }
}
