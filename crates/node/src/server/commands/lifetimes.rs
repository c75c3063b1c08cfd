//! When keys of hybrid stores expire: `TTL` and its like, and `FONDACO.EXPIRY`, by which a node asks one that has the key.
//!
//! The latest event of a key counts, or else its record in the current version. Windows read values alone: these commands ask on
//! a thread that may wait for the disk.

use std::sync::Arc;

use fondaco_catalog::Catalog;
use fondaco_model::StoreKind;
use fondaco_protocol::now_unix_ms;
use fondaco_resp::Reply;
use fondaco_resp::command::CommandId;
use fondaco_stream::Found;

use super::expiry::Unit;
use super::look_ups::LookUp;
use super::{Call, Refusal};
use crate::forward::Expiry;
use crate::server::refusal;
use crate::server::versions::place_of;
use crate::server::window::KeyPlace;

/// Whether a look-up asks when a key of this store expires, and the store is hybrid.
pub(in crate::server) fn is_asked(look_up: LookUp, store: impl FnOnce() -> Option<u16>, catalog: &Catalog) -> bool {
    matches!(look_up, LookUp::TimeLeft(_) | LookUp::ExpiryTime(_))
        && store().is_some_and(|store| catalog.stores()[store as usize].kind == StoreKind::Hybrid)
}

/// `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`
pub(super) async fn look_up(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let look_up = match call.command {
        CommandId::Ttl => LookUp::TimeLeft(Unit::Seconds),
        CommandId::PTtl => LookUp::TimeLeft(Unit::Milliseconds),
        CommandId::ExpireTime => LookUp::ExpiryTime(Unit::Seconds),
        _ => LookUp::ExpiryTime(Unit::Milliseconds),
    };
    let wire_key = call.arguments[1];
    let colon = memchr::memchr(b':', wire_key).ok_or_else(|| refusal::no_colon(wire_key))?;
    let (name, key) = (&wire_key[..colon], &wire_key[colon + 1..]);
    if key.is_empty() {
        return Err(refusal::EMPTY_KEY.into());
    }
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let store = call.session.readable_store(&catalog, name)?;
    let forwarder = &call.context.forwarder;
    forwarder.charge(&catalog, store, 1)?;
    let expiry = match place_of(key, store, &catalog)? {
        KeyPlace::Version { version, .. } => here(&catalog, store, version, key).await?,
        _ => forwarder.expiry(&catalog, store, key).await?,
    };
    let (value, expires_unix_ms) = match expiry {
        Expiry::Absent => (None, None),
        Expiry::Never => (Some(&b""[..]), None),
        Expiry::At(unix_ms) => (Some(&b""[..]), Some(unix_ms)),
    };
    look_up.of(value, expires_unix_ms, now_unix_ms()).write(reply);
    Ok(())
}

/// `FONDACO.EXPIRY store key`: as `PEXPIRETIME`, and never forwarded.
pub(super) async fn of_key(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let catalog = Arc::clone(&call.context.shared.catalog.load());
    let (name, key) = (call.arguments[1], call.arguments[2]);
    let store = call.session.readable_store(&catalog, name)?;
    let expiry = match place_of(key, store, &catalog) {
        Ok(KeyPlace::Version { version, .. }) => here(&catalog, store, version, key).await?,
        _ => return Err(refusal::behind(&catalog, store)),
    };
    reply.integer(expiry.to_integer());
    Ok(())
}

/// The expiry of a key in a version that is open here, and its events.
async fn here(catalog: &Catalog, store: u16, version: u16, key: &[u8]) -> Result<Expiry, Refusal> {
    let overlay = catalog.overlay(version).cloned();
    let (version, key) = (Arc::clone(catalog.version(version)), key.to_vec());
    let behind = refusal::behind(catalog, store);
    let found = tokio::task::spawn_blocking(move || {
        let corrupt = |error: fondaco_stream::StreamError| format!("CORRUPT {error}");
        let of = |unix_ms: Option<u64>| unix_ms.map_or(Expiry::Never, Expiry::At);
        if let Some(overlay) = overlay {
            match overlay.find(&key).map_err(corrupt)? {
                Found::Nothing => {}
                Found::Deleted => return Ok(Expiry::Absent),
                Found::Value(_) => return Ok(of(overlay.expiry(&key).map_err(corrupt)?)),
                Found::Unknown | Found::Behind => return Err(behind),
            }
        }
        let found = version.get_dated(&key).map_err(|error| refusal::failure(&error))?;
        let Some((_, time_ms)) = found else {
            return Ok(Expiry::Absent);
        };
        let expires_unix_ms = version.lifetimes().map(|lifetimes| lifetimes.expires_unix_ms(time_ms));
        Ok(match expires_unix_ms {
            Some(unix_ms) if unix_ms <= now_unix_ms() => Expiry::Absent,
            expires_unix_ms => of(expires_unix_ms),
        })
    });
    found
        .await
        .unwrap_or_else(|_| Err("ERR the node is shutting down".into()))
}
