//! The live settings, stored for the whole cluster: a change through any control port survives restarts, and every
//! process applies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_api::{SettingChanges, SettingList, SettingResource, SettingText};
use fondaco_catalog::{SETTINGS, SettingKind, SettingSpec, SettingValue, Settings};
use fondaco_coordination::{Coordination, CoordinationError, Revision};

use crate::error::ClusterError;
use crate::layout;
use crate::mirror::Mirror;
use crate::operator::ATTEMPTS_MAX;
use crate::setting_changes::{of_templates, setting_text};

/// The value that takes a change back.
const DEFAULT: &str = "default";

/// The longest name of a template, in bytes.
const TEMPLATE_BYTES_MAX: usize = 64;

/// Changes and lists the stored settings.
pub struct LiveSettings {
    /// The settings of this process.
    pub settings: Arc<Settings>,
    /// The session with the coordination service.
    pub coordination: Arc<dyn Coordination>,
    /// Applies the settings when they have changed.
    pub mirror: Mirror,
}

impl LiveSettings {
    /// Changes all of these or none. This process has applied them when it returns.
    pub fn change(&self, changes: &SettingChanges) -> Result<(), ClusterError> {
        let changes = changes.0.iter().map(|(name, value)| change(name, value));
        let changes = changes.collect::<Result<Vec<_>, ClusterError>>()?;
        let path = layout::SETTINGS.parse()?;
        for _ in 0..ATTEMPTS_MAX {
            self.mirror.refresh(&*self.coordination, std::slice::from_ref(&path))?;
            let before = self.mirror.sighting().settings;
            let expected = before.as_ref().map(|before| Revision::new(before.revision));
            let mut remembered = before.map(|before| before.record).unwrap_or_default();
            for (name, value) in &changes {
                match value {
                    Some(value) => drop(remembered.0.insert(name.clone(), value.clone())),
                    None => drop(remembered.0.remove(name)),
                }
            }
            let bytes = serde_json::to_vec(&remembered).map_err(ClusterError::invalid_metadata(layout::SETTINGS))?;
            match self.coordination.write(&path, &bytes, expected) {
                Ok(_) => {
                    self.mirror.refresh(&*self.coordination, std::slice::from_ref(&path))?;
                    return Ok(());
                }
                Err(CoordinationError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ClusterError::TooManyConflicts)
    }

    /// All settings as they are now.
    pub fn list(&self) -> SettingList {
        let stored = self.mirror.sighting().settings;
        let settings = SETTINGS.iter().map(|spec| SettingResource {
            name: spec.name.to_owned(),
            value: setting_text(spec, self.settings.written(spec.setting)),
            default: setting_text(spec, spec.written(spec.default)),
            min: limit(spec, spec.min),
            max: limit(spec, spec.max),
            templates: stored
                .as_ref()
                .map_or_else(BTreeMap::new, |stored| of_templates(&stored.record, spec.name)),
            summary: spec.summary.to_owned(),
        });
        SettingList {
            settings: settings.collect(),
        }
    }
}

/// The stored name of a setting, and its value; none for one that is taken back.
fn change(name: &str, value: &SettingText) -> Result<(String, Option<SettingText>), ClusterError> {
    let (template, name) = match name.split_once('/') {
        Some((template, name)) => (Some(template), name),
        None => (None, name),
    };
    if let Some(template) = template.filter(|template| template.is_empty() || template.len() > TEMPLATE_BYTES_MAX) {
        return Err(ClusterError::InvalidTemplate {
            template: template.to_owned(),
        });
    }
    let name = name.replace('_', "-");
    let (spec, value) = match value {
        SettingText::Text(text) if text == DEFAULT => (Settings::spec(&name)?, None),
        value => {
            let (setting, parsed) = Settings::parse(&name, &value.to_string())?;
            let spec = &SETTINGS[setting as usize];
            let value = match parsed {
                SettingValue::Number(number) => setting_text(spec, spec.written(number)),
                SettingValue::Text(text) => SettingText::Text(text),
            };
            (spec, Some(value))
        }
    };
    let name = match template {
        Some(template) => format!("{template}/{}", spec.name),
        None => spec.name.to_owned(),
    };
    Ok((name, value))
}

/// A limit of a setting; a text has none.
fn limit(spec: &SettingSpec, number: u64) -> Option<SettingText> {
    let has_limits = spec.kind() != SettingKind::Collector;
    has_limits.then(|| setting_text(spec, spec.written(number)))
}
