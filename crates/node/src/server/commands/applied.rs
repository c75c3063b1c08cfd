//! `FONDACO.APPLIED`: another process asks whether this node has applied an event that it has written.

use std::sync::Arc;
use std::time::Duration;

use fondaco_catalog::Setting;
use fondaco_resp::{Reply, parse_integer};
use fondaco_stream::Written;

use super::{Call, NOT_AN_INTEGER, Refusal};
use crate::server::refusal;
use crate::server::versions::place_of;
use crate::server::window::KeyPlace;

/// `FONDACO.APPLIED store key partition offset timeout`: 1 once reads of the key here see the event at that place of the topic; 0 if they
/// do not in time.
pub(super) async fn applied(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let number = |at: usize| parse_integer(call.arguments[at]).and_then(|number| u64::try_from(number).ok());
    let (Some(partition), Some(offset), Some(timeout_ms)) = (number(3), number(4), number(5)) else {
        return Err(NOT_AN_INTEGER.into());
    };
    let written = Written {
        partition: u32::try_from(partition).map_err(|_| NOT_AN_INTEGER)?,
        offset,
    };
    let (name, key) = (call.arguments[1], call.arguments[2]);
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let store = call.session.readable_store(&catalog, name)?;
    let overlay = match place_of(key, store, &catalog) {
        Ok(KeyPlace::Version { version, .. }) => catalog.overlay(version),
        _ => None,
    };
    let overlay = overlay.ok_or_else(|| refusal::behind(&catalog, store))?;
    let longest_ms = call.context.shared.settings.get(Setting::ForwardTimeoutMs);
    let timeout = Duration::from_millis(timeout_ms.min(longest_ms));
    let applied = tokio::time::timeout(timeout, overlay.sees(key, written)).await;
    reply.integer(applied.is_ok().into());
    Ok(())
}
