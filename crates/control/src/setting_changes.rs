//! Changes of live settings, as an operator asks for them and as they are stored for the whole cluster.

use std::collections::BTreeMap;

use fondaco_node::Settings;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Settings to change: their names, with `-` or `_`, and values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"fetch-rate-bytes-per-second": 104857600}))]
pub struct SettingChanges(pub BTreeMap<String, u64>);

impl SettingChanges {
    /// Applies them in this process.
    pub(crate) fn take_up(&self, settings: &Settings) {
        for (name, value) in &self.0 {
            let parsed = Settings::parse(name, &value.to_string());
            let set = parsed.and_then(|(setting, value)| settings.set(setting, value));
            if let Err(error) = set {
                // Written by another release with other limits.
                tracing::warn!(%error, "a stored setting is not applied");
            }
        }
    }
}
