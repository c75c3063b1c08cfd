//! The live settings, stored for the whole cluster: a change through any control port survives restarts, and every
//! process applies it.

use std::sync::Arc;

use fondaco_coordination::{Coordination, CoordinationError, Revision};
use fondaco_node::{SETTINGS, SettingError, SettingKind, SettingSpec, SettingValue, Settings};

use crate::error::ControlError;
use crate::http::resources::{SettingList, SettingResource};
use crate::layout;
use crate::mirror::Mirror;
use crate::operator::ATTEMPTS_MAX;
use crate::setting_changes::{SettingChanges, SettingText};

/// Changes and lists the stored settings.
pub(crate) struct LiveSettings {
    pub(crate) settings: Arc<Settings>,
    pub(crate) coordination: Arc<dyn Coordination>,
    /// Applies the settings when they have changed.
    pub(crate) mirror: Mirror,
}

impl LiveSettings {
    /// Changes all of these or none. This process has applied them when it returns.
    pub(crate) fn change(&self, changes: &SettingChanges) -> Result<(), ControlError> {
        let parsed = changes
            .0
            .iter()
            .map(|(name, value)| Settings::parse(&name.replace('_', "-"), &value.to_string()))
            .collect::<Result<Vec<_>, SettingError>>()?;
        let path = layout::SETTINGS.parse()?;
        let invalid = |error: serde_json::Error| ControlError::InvalidMetadata {
            entry: layout::SETTINGS.to_owned(),
            reason: error.to_string(),
        };
        for _ in 0..ATTEMPTS_MAX {
            self.mirror.refresh(&*self.coordination, std::slice::from_ref(&path))?;
            let before = self.mirror.look().settings;
            let expected = before.as_ref().map(|before| Revision::new(before.revision));
            let mut remembered = before.map(|before| before.record).unwrap_or_default();
            for (setting, value) in &parsed {
                let spec = &SETTINGS[*setting as usize];
                let value = match value {
                    SettingValue::Number(number) => SettingText::read(spec, spec.written(*number)),
                    SettingValue::Text(text) => SettingText::Text(text.clone()),
                };
                remembered.0.insert(spec.name.to_owned(), value);
            }
            let bytes = serde_json::to_vec(&remembered).map_err(invalid)?;
            match self.coordination.write(&path, &bytes, expected) {
                Ok(_) => {
                    self.mirror.refresh(&*self.coordination, std::slice::from_ref(&path))?;
                    return Ok(());
                }
                Err(CoordinationError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ControlError::TooManyConflicts)
    }

    /// All settings as they are now.
    pub(crate) fn list(&self) -> SettingList {
        let settings = SETTINGS.iter().map(|spec| SettingResource {
            name: spec.name.to_owned(),
            value: SettingText::read(spec, self.settings.written(spec.setting)),
            default: SettingText::read(spec, spec.written(spec.default)),
            min: limit(spec, spec.min),
            max: limit(spec, spec.max),
            summary: spec.summary.to_owned(),
        });
        SettingList {
            settings: settings.collect(),
        }
    }
}

/// A limit of a setting; a text has none.
fn limit(spec: &SettingSpec, number: u64) -> Option<SettingText> {
    let has_limits = spec.kind() != SettingKind::Collector;
    has_limits.then(|| SettingText::read(spec, spec.written(number)))
}
