//! Changes of live settings, as an operator asks for them and as they are stored for the whole cluster.

use std::collections::BTreeMap;
use std::fmt;

use fondaco_node::{SETTINGS, SettingKind, SettingSpec, Settings};
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
    /// What a setting of this kind has when this is written.
    pub(crate) fn read(spec: &SettingSpec, written: String) -> Self {
        let number = match spec.kind() {
            SettingKind::Number | SettingKind::Share => written.parse().map(Self::Number),
            SettingKind::Collector => return Self::Text(written),
        };
        let number = number.or_else(|_| written.parse().map(Self::Share));
        number.unwrap_or(Self::Text(written))
    }

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

impl SettingChanges {
    /// The values for a process with this template, or without one: its template's count before those of the cluster.
    fn of_process(&self, template: Option<&str>) -> BTreeMap<&str, &SettingText> {
        let for_all = self.0.iter().filter(|(name, _)| !name.contains('/'));
        let mut values: BTreeMap<&str, &SettingText> = for_all.map(|(name, value)| (name.as_str(), value)).collect();
        values.extend(self.0.iter().filter_map(|(name, value)| {
            let (of, name) = name.split_once('/')?;
            (Some(of) == template).then_some((name, value))
        }));
        values
    }

    /// The templates with a value of their own for a setting.
    pub(crate) fn of_templates(&self, setting: &str) -> BTreeMap<String, SettingText> {
        let named = self.0.iter().filter_map(|(name, value)| {
            let (template, name) = name.split_once('/')?;
            (name == setting).then(|| (template.to_owned(), value.clone()))
        });
        named.collect()
    }

    /// Applies them in this process. What `former` had and these have no more is the default again.
    pub(crate) fn take_up(&self, settings: &Settings, former: Option<&Self>) {
        let values = self.of_process(settings.template());
        let former = former.map(|former| former.of_process(settings.template()));
        for spec in &SETTINGS {
            let was_set = former.as_ref().is_some_and(|former| former.contains_key(spec.name));
            if was_set && !values.contains_key(spec.name) {
                settings.reset(spec.setting);
            }
        }
        for (name, value) in values {
            let parsed = Settings::parse(name, &value.to_string());
            let set = parsed.and_then(|(setting, value)| settings.apply(setting, &value));
            if let Err(error) = set {
                // Written by another release with other limits.
                tracing::warn!(%error, "a stored setting is not applied");
            }
        }
    }
}
