//! Users, sessions, and what people changed.

use fondaco_model::cluster::{ControlRole, UserRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A session of a browser.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SessionResource {
    /// The user; null where the port asks for nothing.
    pub user: Option<String>,
    /// The user's role.
    pub role: ControlRole,
    /// Whether the port asks for a user or the token.
    pub sign_in: bool,
    /// The value of the header `fondaco-csrf` of changes; null if none is needed.
    pub csrf: Option<String>,
}

/// The users of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    /// The users, by name.
    pub users: Vec<UserResource>,
}

/// A user.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UserResource {
    /// The name.
    pub name: String,
    /// Patterns of the names of the stores that the user may read.
    pub stores: Vec<String>,
    /// Patterns of the names of the stores that the user may write, and read.
    pub writes: Vec<String>,
    /// Whether the user may disconnect other clients and change settings over RESP.
    pub admin: bool,
    /// The user's role at control ports; null for none.
    pub role: Option<ControlRole>,
}

/// A user to be added or changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The password, of 8 bytes or more; that of a known user stays unless said.
    #[serde(default)]
    pub password: Option<String>,
    /// Patterns of the names of the stores that the user may read; `*` is all.
    #[serde(default)]
    pub stores: Vec<String>,
    /// Patterns of the names of the stores that the user may write, and read.
    #[serde(default)]
    pub writes: Vec<String>,
    /// Whether the user may disconnect other clients and change settings over RESP.
    #[serde(default)]
    pub admin: bool,
    /// The user's role at control ports; none unless said.
    #[serde(default)]
    pub role: Option<ControlRole>,
}

/// The changes that people made.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The changes, the latest first.
    pub entries: Vec<AuditEntry>,
}

/// A change that someone asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Who; `token` is someone with the token, and empty anyone where the port asks for nothing.
    pub user: String,
    /// The role.
    pub role: String,
    /// The method of the request.
    pub method: String,
    /// Its path.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
    /// A note; empty without one.
    #[serde(default)]
    pub note: String,
}

impl From<&UserRecord> for UserResource {
    fn from(user: &UserRecord) -> Self {
        Self {
            name: user.name.to_string(),
            stores: user.stores.clone(),
            writes: user.writes.clone(),
            admin: user.admin,
            role: user.role,
        }
    }
}
