//! The one value of a versioned record, for commands that expect a single value.

use bytes::Bytes;
use fondaco_model::versioned::{Record, Resolution, resolve};

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
pub(crate) fn value_of(record: &Record, resolution: Resolution, now_unix_ms: u64) -> Result<Option<Current>, String> {
    let resolved = resolve(record, resolution, now_unix_ms);
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
