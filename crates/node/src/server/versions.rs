//! The versions of stores that requests are answered from: the current one of the store that a key names, or the version that
//! a request names itself.
//!
//! A hybrid store is a batch store with later events on top of each version, which are looked at first. Answers of versions
//! may be cached under the version's number, for they never change; those of hybrid stores are not cached.

use fondaco_catalog::{Catalog, NOT_OPEN};
use fondaco_model::VersionNumber;
use fondaco_protocol::Envelope;
use fondaco_resp::parse_integer;

use super::refusal;
use super::session::Session;
use super::window::KeyPlace;

/// The place of the answer for a key of a store, found without I/O: in an open version, with replicas, or with other
/// nodes.
///
/// # Errors
/// The error to answer with: this process may not ask others.
#[inline]
pub(in crate::server) fn place_of(key: &[u8], store: u16, catalog: &Catalog) -> Result<KeyPlace, String> {
    if catalog.versioned(store).is_some() {
        return Ok(KeyPlace::Replicas);
    }
    place_in(catalog.current(store), key, store, catalog)
}

/// The place of the answer for a key of a batch or hybrid store that is read at the version with this index.
///
/// # Errors
/// As [`place_of`].
#[inline]
pub(in crate::server) fn place_in(version: u16, key: &[u8], store: u16, catalog: &Catalog) -> Result<KeyPlace, String> {
    if version != NOT_OPEN {
        let probe = catalog.version(version).probe(key);
        if probe.is_held() && catalog.overlay(version).is_none_or(|overlay| overlay.answers(key)) {
            return Ok(KeyPlace::Version { version, probe });
        }
    }
    refusal::check_other_nodes(catalog, store)?;
    Ok(KeyPlace::Nodes)
}

/// A version of a batch store that another node or a client asks for by its number.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Pinned {
    /// The store's place in [`Catalog::stores`].
    pub(in crate::server) store: u16,
    /// The version's place among the catalog's open ones.
    pub(in crate::server) version: u16,
    /// How long the request may take, if that is limited.
    pub(in crate::server) timeout_ms: Option<u64>,
    /// Whether the reply begins with the node's rate of requests.
    pub(in crate::server) wants_rate: bool,
    /// Whether the sender reads dense unions as bits.
    pub(in crate::server) reads_bits: bool,
}

impl Pinned {
    /// Parses the arguments `envelope store-id version store`, from the first one on.
    ///
    /// # Errors
    /// The error to answer with: malformed arguments, no right to read the store, a version that is not open here.
    pub(in crate::server) fn parse<'a>(
        argument: impl Fn(usize) -> &'a [u8],
        session: &Session,
        catalog: &Catalog,
    ) -> Result<Self, String> {
        let number = |at| parse_integer(argument(at)).and_then(|number| u64::try_from(number).ok());
        let envelope = Envelope::parse(argument(1)).map_err(|error| format!("ERR {error}"))?;
        let (Some(wanted_id), Some(number)) = (number(2), number(3)) else {
            return Err("ERR value is not an integer or out of range".into());
        };
        let store = session.readable_store(catalog, argument(4))?;
        let store_here = &catalog.stores()[store as usize];
        // The name may be that of another store by now, whose versions began at 1 again.
        if wanted_id != 0 && wanted_id != u64::from(store_here.id.get()) {
            return Err(refusal::other_store(store_here, wanted_id));
        }
        let version = match VersionNumber::new(number) {
            None => catalog.current(store),
            Some(number) => catalog.place_of(store, number).unwrap_or(NOT_OPEN),
        };
        if version == NOT_OPEN {
            return Err(refusal::version_gone(catalog, store, VersionNumber::new(number)));
        }
        Ok(Self {
            store,
            version,
            timeout_ms: envelope.timeout_ms,
            wants_rate: envelope.wants_rate,
            reads_bits: envelope.reads_bits,
        })
    }
}
