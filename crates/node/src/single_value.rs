//! What a record of a versioned store is to commands that know of one value.

use bytes::Bytes;
use fondaco_model::versioned::{Record, Resolution, resolve};

/// A value that is there, and when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) value: Bytes,
    pub(crate) expires_unix_ms: Option<u64>,
}

/// The value that a record has at this time.
///
/// # Errors
/// The error to answer with: there are several, and the store leaves it to its clients which one counts.
pub(crate) fn value_of(record: &Record, resolution: Resolution, now_unix_ms: u64) -> Result<Option<Current>, String> {
    let resolved = resolve(record, resolution, now_unix_ms);
    if resolved.values.len() > 1 {
        return Err(format!(
            "CONFLICT the key has {} values, and its store leaves it to clients which one counts: read them with \
             FONDACO.GET, and write one with FONDACO.PUT and their context",
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
