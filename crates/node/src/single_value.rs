//! The one value of a versioned record, for commands that expect a single value.

use bytes::Bytes;
use fondaco_catalog::VersionedStore;
use fondaco_model::versioned::{Record, resolve_with};
use fondaco_schema::merge_fields;

/// The value of a key, and when it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) value: Bytes,
    pub(crate) expires_unix_ms: Option<u64>,
}

/// The value of a record at this time; `None` if it has none.
///
/// # Errors
/// The error to answer with: the record has several values, and the store lets clients resolve them.
pub(crate) fn value_of(record: &Record, store: &VersionedStore, now_unix_ms: u64) -> Result<Option<Current>, String> {
    let merge = |base: Option<&Bytes>, fields: &[(&str, Option<&Bytes>)]| merge_fields(&store.rules(), base, fields);
    let resolved = resolve_with(record, store.settings.resolution, now_unix_ms, &merge);
    if resolved.values.len() > 1 {
        return Err(format!(
            "CONFLICT the key has {} values, and its store lets clients resolve them: read them with \
             FONDACO.GET, then write one with FONDACO.PUT and the context that was returned",
            resolved.values.len()
        ));
    }
    let expires_unix_ms = resolved.expires_unix_ms;
    Ok(resolved
        .values
        .into_iter()
        .next()
        .map(|value| Current { value, expires_unix_ms }))
}
