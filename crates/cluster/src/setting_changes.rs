//! How the stored changes of live settings take effect in a process.

use std::collections::BTreeMap;

use fondaco_api::{SettingChanges, SettingText};
use fondaco_catalog::{SETTINGS, SettingKind, SettingSpec, Settings};

/// The value of a setting whose text is `written`.
pub(crate) fn setting_text(spec: &SettingSpec, written: String) -> SettingText {
    let number = match spec.kind() {
        SettingKind::Number | SettingKind::Share => written.parse().map(SettingText::Number),
        SettingKind::Collector => return SettingText::Text(written),
    };
    let number = number.or_else(|_| written.parse().map(SettingText::Share));
    number.unwrap_or(SettingText::Text(written))
}

/// Applies changes in this process. A setting that `former` changed, and these changes do not, gets its default again.
pub(crate) fn take_up(changes: &SettingChanges, settings: &Settings, former: Option<&SettingChanges>) {
    let values = of_process(changes, settings.template());
    let former = former.map(|former| of_process(former, settings.template()));
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

/// The values for a process with this template, or without one: its template's count before those of the cluster.
fn of_process<'a>(changes: &'a SettingChanges, template: Option<&str>) -> BTreeMap<&'a str, &'a SettingText> {
    let for_all = changes.0.iter().filter(|(name, _)| !name.contains('/'));
    let mut values: BTreeMap<&str, &SettingText> = for_all.map(|(name, value)| (name.as_str(), value)).collect();
    values.extend(changes.0.iter().filter_map(|(name, value)| {
        let (of, name) = name.split_once('/')?;
        (Some(of) == template).then_some((name, value))
    }));
    values
}

/// The templates with a value of their own for a setting.
pub(crate) fn of_templates(changes: &SettingChanges, setting: &str) -> BTreeMap<String, SettingText> {
    let named = changes.0.iter().filter_map(|(name, value)| {
        let (template, name) = name.split_once('/')?;
        (name == setting).then(|| (template.to_owned(), value.clone()))
    });
    named.collect()
}
