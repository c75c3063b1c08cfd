//! The states of a push: fetching → ready → swapped, or failed, or cancelled. A version that a gate stopped is held: it is neither
//! under way nor ended, and is swapped, cancelled, or confirmed, by an operator or the program that pushes it.
//!
//! It holds no files and does no work: the code that does the work reports events, and this decides whether they may
//! happen now. Invariant: a push that ended never changes again.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PushState {
    /// The files of the version are being pulled and verified.
    Fetching,
    /// The version is complete on disk and open, but not current.
    Ready,
    /// The version is complete on disk and open, and a gate did not let it pass.
    Held,
    /// The version became current. A final state.
    Swapped,
    /// The push failed, and its files are deleted. A final state.
    Failed,
    /// The push was cancelled, and its files are deleted. A final state.
    Cancelled,
}

/// Whether a version that has to be confirmed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfirmationState {
    /// It is not: the version has passed its other gates, and is held.
    Awaited,
    /// It is.
    Given,
}

/// The events of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushEvent {
    /// All files are there and verified.
    Fetched,
    /// The version was made current.
    Swapped,
    /// A gate did not let the version pass.
    Held,
    /// A held version was confirmed, and its canary is next.
    Confirmed,
    /// The push failed.
    Failed,
    /// An operator cancelled it.
    Cancelled,
}

/// An event that cannot happen in this state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a push that is {state} cannot be {event}: start a new push")]
pub struct PushStateError {
    state: PushState,
    event: PushEvent,
}

impl PushState {
    /// Whether the state is final.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Swapped | Self::Failed | Self::Cancelled)
    }

    /// The state after an event.
    pub fn after(self, event: PushEvent) -> Result<Self, PushStateError> {
        match (self, event) {
            (Self::Fetching, PushEvent::Fetched) => Ok(Self::Ready),
            (Self::Ready, PushEvent::Held) => Ok(Self::Held),
            (Self::Held, PushEvent::Confirmed) => Ok(Self::Ready),
            (Self::Ready | Self::Held, PushEvent::Swapped) => Ok(Self::Swapped),
            (Self::Fetching | Self::Ready, PushEvent::Failed) => Ok(Self::Failed),
            (Self::Fetching | Self::Ready | Self::Held, PushEvent::Cancelled) => Ok(Self::Cancelled),
            (state, event) => Err(PushStateError { state, event }),
        }
    }
}

impl fmt::Display for PushState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fetching => "fetching",
            Self::Ready => "ready",
            Self::Held => "held",
            Self::Swapped => "swapped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

impl fmt::Display for PushEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fetched => "fetched",
            Self::Held => "held",
            Self::Confirmed => "confirmed",
            Self::Swapped => "swapped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event() -> impl Strategy<Value = PushEvent> {
        prop_oneof![
            Just(PushEvent::Fetched),
            Just(PushEvent::Swapped),
            Just(PushEvent::Held),
            Just(PushEvent::Confirmed),
            Just(PushEvent::Failed),
            Just(PushEvent::Cancelled),
        ]
    }

    #[test]
    fn a_push_that_goes_well_is_fetched_and_then_swapped() {
        let ready = PushState::Fetching.after(PushEvent::Fetched).unwrap();
        assert_eq!(ready.after(PushEvent::Swapped), Ok(PushState::Swapped));
    }

    #[test]
    fn an_incomplete_version_is_never_swapped_in() {
        assert!(PushState::Fetching.after(PushEvent::Swapped).is_err());
    }

    #[test]
    fn a_held_push_is_swapped_or_cancelled_but_does_not_fail() {
        let held = PushState::Ready.after(PushEvent::Held).unwrap();
        assert!(!held.is_end() && held.after(PushEvent::Failed).is_err());
        assert_eq!(held.after(PushEvent::Swapped), Ok(PushState::Swapped));
        assert_eq!(held.after(PushEvent::Cancelled), Ok(PushState::Cancelled));
        assert_eq!(held.after(PushEvent::Confirmed), Ok(PushState::Ready));
    }

    proptest! {
        #[test]
        fn a_push_that_ended_never_moves_again(events in prop::collection::vec(event(), 0..10)) {
            let mut state = PushState::Fetching;
            for event in events {
                match state.after(event) {
                    Ok(next) => {
                        prop_assert!(!state.is_end());
                        state = next;
                    }
                    Err(error) => prop_assert!(error.to_string().contains(&state.to_string())),
                }
            }
        }
    }
}
