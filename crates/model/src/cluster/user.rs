//! The users of a cluster, with their rights on stores and at control ports.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::StoreName;
use crate::text_form::stored_as_text;

/// The name of a user: 1 to 64 characters from `a-z A-Z 0-9 _ - .`, the first a letter, digit or underscore.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserName(String);

/// Why a text is not the name of a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid user name {name:?}: use 1 to 64 characters from a-z A-Z 0-9 _ - . beginning with a letter, digit or underscore"
)]
pub struct UserNameError {
    name: String,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserRecord {
    /// The name.
    pub name: UserName,
    /// The hash of the password, by Argon2id, in the PHC string format.
    pub password: String,
    /// Patterns of the names of the stores that the user may read; `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<String>,
    /// Patterns of the names of the stores that the user may write, and read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Whether the user may list and disconnect other clients over RESP, and change settings there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// The user's rights at control ports; none without a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<ControlRole>,
}

/// The rights of a user at control ports. A later role includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ControlRole {
    /// See everything.
    Viewer,
    /// Also change stores, push, swap, roll back, and move partitions.
    Operator,
    /// Also change users and settings, and decide which data is given up.
    Admin,
}

impl UserName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = UserNameError;

    fn from_str(name: &str) -> Result<Self, UserNameError> {
        // The rules are those of stores: the name is a part of a path, too.
        match name.parse::<StoreName>() {
            Ok(_) => Ok(Self(name.to_owned())),
            Err(_) => Err(UserNameError {
                name: name.chars().take(80).collect(),
            }),
        }
    }
}

stored_as_text!(UserName, UserNameError);

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ControlRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}
