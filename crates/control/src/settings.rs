//! The live settings of the node, remembered: what is changed through the control port survives a
//! restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fondaco_node::{SETTINGS, SettingError, Settings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coordination::{Coordination, EntryPath};
use crate::error::ControlError;
use crate::http::{SettingList, SettingResource};

/// Settings to be changed: their names, with `-` or `_`, and values.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"fetch-rate-bytes-per-second": 104857600}))]
pub struct SettingChanges(pub BTreeMap<String, u64>);

/// Settings that remember.
pub(crate) struct LiveSettings {
    settings: Arc<Settings>,
    coordination: Arc<dyn Coordination>,
    /// Held while changing: the entry and the settings change together.
    changing: Mutex<()>,
}

impl LiveSettings {
    /// Takes up what is remembered.
    pub(crate) fn open(settings: Arc<Settings>, coordination: Arc<dyn Coordination>) -> Result<Self, ControlError> {
        if let Some(entry) = coordination.read(&path()?)? {
            let remembered = parse(&entry.bytes)?;
            for (name, value) in &remembered.0 {
                match Settings::parse(name, &value.to_string()) {
                    Ok((setting, value)) => settings.set(setting, value)?,
                    // Written by another release: its limits are not ours.
                    Err(error) => tracing::warn!(%error, "a remembered setting is left at its default"),
                }
            }
        }
        Ok(Self {
            settings,
            coordination,
            changing: Mutex::new(()),
        })
    }

    /// Changes all of these or none.
    pub(crate) fn change(&self, changes: &SettingChanges) -> Result<(), ControlError> {
        let parsed = changes
            .0
            .iter()
            .map(|(name, value)| Settings::parse(&name.replace('_', "-"), &value.to_string()))
            .collect::<Result<Vec<_>, SettingError>>()?;
        // The lock guards no memory of its own.
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.coordination.read(&path()?)?;
        let mut remembered = match &before {
            Some(entry) => parse(&entry.bytes)?,
            None => SettingChanges::default(),
        };
        for (setting, value) in &parsed {
            let spec = &SETTINGS[*setting as usize];
            remembered.0.insert(spec.name.to_owned(), *value);
        }
        let bytes = serde_json::to_vec(&remembered).map_err(invalid)?;
        self.coordination
            .write(&path()?, &bytes, before.map(|entry| entry.revision))?;
        for (setting, value) in parsed {
            self.settings.set(setting, value)?;
        }
        Ok(())
    }

    /// All settings as they are now.
    pub(crate) fn list(&self) -> SettingList {
        let settings = SETTINGS.iter().map(|spec| SettingResource {
            name: spec.name.to_owned(),
            value: self.settings.get(spec.setting),
            default: spec.default,
            min: spec.min,
            max: spec.max,
            summary: spec.summary.to_owned(),
        });
        SettingList {
            settings: settings.collect(),
        }
    }
}

fn path() -> Result<EntryPath, ControlError> {
    Ok(EntryPath::new(["settings"])?)
}

fn parse(bytes: &[u8]) -> Result<SettingChanges, ControlError> {
    serde_json::from_slice(bytes).map_err(invalid)
}

fn invalid(error: serde_json::Error) -> ControlError {
    ControlError::InvalidMetadata {
        entry: "settings".to_owned(),
        reason: error.to_string(),
    }
}
