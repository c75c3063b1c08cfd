//! Counts the differences between two versions, by field where values have fields.

use fondaco_format::{Compared, Manifest, ValueEncoding};
use fondaco_model::{DiffCounts, KeyType, ValueType};
use fondaco_schema::{Schemas, key_to_json, value_to_json};
use serde_json::{Map, Value};

/// The most characters of a sample key, and of the name of a field.
const CHARS_MAX: usize = 200;

/// Counts the keys of a comparison.
pub(super) struct DiffCounter {
    key_type: KeyType,
    before: Fields,
    after: Fields,
    nulls: Vec<String>,
}

impl DiffCounter {
    /// A counter for two versions, which also counts the nulls of some fields of the later one.
    pub(super) fn new(before: &Manifest, after: &Manifest, nulls: Vec<String>) -> Self {
        Self {
            key_type: after.key_type.clone(),
            before: Fields::of(before),
            after: Fields::of(after),
            nulls,
        }
    }

    /// Whether it has to see the keys whose values are equal.
    pub(super) fn needs_everything(&self) -> bool {
        !self.nulls.is_empty()
    }

    /// Counts a key.
    pub(super) fn count(&self, compared: &Compared, counts: &mut DiffCounts) {
        let (before, after) = (compared.before.as_deref(), compared.after.as_deref());
        self.count_nulls(after, counts);
        let (count, keys) = match (before, after) {
            (Some(_), None) => (&mut counts.gone, &mut counts.gone_keys),
            (None, Some(_)) => (&mut counts.new, &mut counts.new_keys),
            (Some(before), Some(after)) if before != after => (&mut counts.changed, &mut counts.changed_keys),
            _ => return,
        };
        *count += 1;
        if keys.len() < DiffCounts::SAMPLES_MAX {
            keys.push(shown_key(&self.key_type, &compared.key));
        }
        if let (Some(before), Some(after)) = (before, after)
            && let (Some(before), Some(after)) = (self.before.read(before), self.after.read(after))
        {
            let differs = before.iter().filter(|&(name, value)| after.get(name) != Some(value));
            let added = after.keys().filter(|name| !before.contains_key(*name));
            let names = differs.map(|(name, _)| name).chain(added);
            let shown = |name: &String| name.chars().take(CHARS_MAX).collect::<String>();
            names.for_each(|name| counts.count_field(&shown(name), 1));
        }
    }

    fn count_nulls(&self, after: Option<&[u8]>, counts: &mut DiffCounts) {
        let Some(after) = after.filter(|_| self.needs_everything()) else {
            return;
        };
        let fields = self.after.read(after).unwrap_or_default();
        for name in &self.nulls {
            let is_null = fields.get(name).is_none_or(Value::is_null);
            *counts.nulls.entry(name.clone()).or_default() += u64::from(is_null);
        }
    }
}

/// A key as text for people.
fn shown_key(key_type: &KeyType, key: &[u8]) -> String {
    let tuple = match key_type {
        KeyType::Tuple(_) => key_to_json(key_type, key).ok(),
        KeyType::One(_) => None,
    };
    let text = tuple.map_or_else(|| String::from_utf8_lossy(key).into_owned(), |json| json.to_string());
    text.chars().take(CHARS_MAX).collect()
}

/// How the values of a version are read as fields.
struct Fields {
    value_type: ValueType,
    has_columns: bool,
    schemas: Schemas,
}

impl Fields {
    fn of(manifest: &Manifest) -> Self {
        let texts = manifest.value_schemas.iter().map(|schema| schema.parts());
        Self {
            value_type: manifest.value_type,
            has_columns: manifest.schema.encoding == ValueEncoding::Json,
            // Schemas were checked by the build; without them values are compared as a whole.
            schemas: Schemas::of_texts(manifest.value_type, texts).unwrap_or_default(),
        }
    }

    /// The fields of a value; `None` if it has none.
    fn read(&self, value: &[u8]) -> Option<Map<String, Value>> {
        let json = match self.value_type.has_schemas() {
            true => Some(self.schemas.decode(value).ok()?.1),
            false => value_to_json(self.value_type, value).ok()?,
        };
        match json {
            Some(Value::Object(fields)) => Some(fields),
            None if self.has_columns => serde_json::from_slice(value).ok(),
            _ => None,
        }
    }
}
