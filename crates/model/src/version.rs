//! Version numbers.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of one version of a store, counted from 1 and never used twice for one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionNumber(NonZeroU64);

/// Why a text is not a version number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid version number {text:?}: versions are whole numbers from 1")]
pub struct VersionNumberError {
    text: String,
}

impl VersionNumber {
    /// The first version of a store.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The version with this number; `None` for 0.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number itself.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The number after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for VersionNumber {
    type Err = VersionNumberError;

    fn from_str(text: &str) -> Result<Self, VersionNumberError> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| VersionNumberError {
            text: text.chars().take(40).collect(),
        })
    }
}
