//! The members of a cluster: nodes, by number and by identity.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;

/// The permanent number of a node, from 1. The leading controller gives it out, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(NonZeroU32);

impl NodeId {
    /// The first node of a cluster.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The node with this number; `None` for 0.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// The number itself.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The number after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;

    fn from_str(text: &str) -> Result<Self, NodeIdError> {
        let number = text.parse().ok().and_then(Self::new);
        number.ok_or_else(|| NodeIdError {
            text: text.chars().take(80).collect(),
        })
    }
}

/// Why a text is not the number of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid node number {text:?}: nodes are whole numbers from 1")]
pub struct NodeIdError {
    text: String,
}

/// The permanent identity of a process or a cluster: 128 random bits as 32 hexadecimal digits. A node's identity is
/// made with its data directory, and stays there; it distinguishes two nodes that claim one number.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity(String);

impl Identity {
    /// The identity with these bits, which should be random.
    pub fn of(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        match text.len() == 32 && text.bytes().all(digit) {
            true => Ok(Self(text.to_owned())),
            false => Err(IdentityError {
                text: text.chars().take(80).collect(),
            }),
        }
    }
}

/// Why a text is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid identity {text:?}: it has 32 hexadecimal digits in lower case")]
pub struct IdentityError {
    text: String,
}

stored_as_text!(Identity, IdentityError);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
