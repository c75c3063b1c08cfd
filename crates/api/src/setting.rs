//! Changes of live settings, as an operator asks for them and as they are stored for the whole cluster.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// Settings to change: their names, with `-` or `_`, and values. A name such as `large/maxclients` is for the processes of a
/// template. The value `default` takes back what was set: the value of the cluster counts again, or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"fetch-rate-bytes-per-second": 104857600, "large/maxclients": 50000}))]
pub struct SettingChanges(pub BTreeMap<String, SettingText>);

/// The value of a setting, as JSON has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingText {
    /// A whole number.
    Number(u64),
    /// A share from 0 to 1.
    Share(f64),
    /// A text.
    Text(String),
}

// Written by hand, since what is derived says that a whole number is not a number.
impl PartialSchema for SettingText {
    fn schema() -> RefOr<Schema> {
        let kinds = SchemaType::Array(vec![Type::Number, Type::String]);
        ObjectBuilder::new().schema_type(kinds).into()
    }
}

impl ToSchema for SettingText {}

// JSON has no value that does not equal itself.
impl Eq for SettingText {}

impl SettingText {
    /// The number; 0 of a text or a share.
    pub fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Share(_) | Self::Text(_) => 0,
        }
    }
}

impl fmt::Display for SettingText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Share(share) => share.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}
