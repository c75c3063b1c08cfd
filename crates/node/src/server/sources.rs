//! What answers for the keys of stores, one [`Source`] for each kind of store.
//!
//! A source says at once where the answer for a key is: in a chunk of an open version, which may be in memory or on disk;
//! known, since this node's replica has the record in memory; or with replicas or other nodes. All keys of a window that are
//! with others are asked for together.
//!
//! A hybrid store is a batch store with later events on top of each version, which are looked at first. Answers of versions
//! may be cached under the version's number, for they never change; those of hybrid stores and of replicas are not cached.

use fondaco_catalog::{Catalog, NOT_OPEN, VersionedStore};
use fondaco_format::Probe;
use fondaco_model::VersionNumber;
use fondaco_protocol::Envelope;
use fondaco_resp::parse_integer;

use super::buffers::FREE_BYTES;
use super::refusal;
use super::session::{Admission, Session};
use crate::forward::{Answers, Forwarder, Steered, ValueAnswer, Wanted};

/// Where the answer for a key is.
#[derive(Debug)]
pub(in crate::server) enum Located {
    /// In an open version, which stands at this place among the catalog's open ones, or in the later events on top of
    /// it.
    Version { version: u16, probe: Probe },
    /// Here: this node's replica has it in memory, and no other has to be asked.
    Known(ValueAnswer),
    /// With replicas, of which this node may have one.
    Replicas,
    /// With other nodes.
    Nodes,
}

/// What answers for keys of one kind of store.
pub(in crate::server) trait Source {
    /// Where the answer for a key is.
    ///
    /// # Errors
    /// The error to answer with: this process may not ask others.
    fn locate(&self, key: &[u8], admission: &Admission<'_>) -> Result<Located, String>;

    /// Asks others for keys of stores of this kind. One answer for each key, in order.
    async fn ask(forwarder: &Forwarder, catalog: &Catalog, keys: &[Wanted<'_>], steered: Steered) -> Answers;
}

/// A batch or hybrid store: its current version, and the later events of a hybrid store.
pub(in crate::server) struct Batch {
    /// The store's place in [`Catalog::stores`].
    pub(in crate::server) store: u16,
}

/// A versioned store: the replicas of its partitions.
pub(in crate::server) struct Versioned<'a>(pub(in crate::server) &'a VersionedStore);

impl Source for Batch {
    #[inline]
    fn locate(&self, key: &[u8], admission: &Admission<'_>) -> Result<Located, String> {
        let catalog = admission.catalog;
        let version = catalog.current(self.store);
        if version != NOT_OPEN {
            let probe = catalog.version(version).probe(key);
            if probe.is_held() && catalog.overlay(version).is_none_or(|overlay| overlay.answers(key)) {
                return Ok(Located::Version { version, probe });
            }
        }
        refusal::check_elsewhere(catalog, self.store)?;
        Ok(Located::Nodes)
    }

    async fn ask(forwarder: &Forwarder, catalog: &Catalog, keys: &[Wanted<'_>], steered: Steered) -> Answers {
        forwarder.read(catalog, keys, steered).await
    }
}

impl Source for Versioned<'_> {
    fn locate(&self, key: &[u8], admission: &Admission<'_>) -> Result<Located, String> {
        let answer = admission.forwarder.recall(admission.catalog, self.0, key);
        // A long value is read again, within the memory that there is for answers of replicas.
        let is_short = |answer: &ValueAnswer| !matches!(answer, Ok(Some(value)) if value.len() as u64 > FREE_BYTES);
        Ok(answer.filter(is_short).map_or(Located::Replicas, Located::Known))
    }

    /// Which replicas are asked is a matter of quorums, and not of a strategy.
    async fn ask(forwarder: &Forwarder, catalog: &Catalog, keys: &[Wanted<'_>], _steered: Steered) -> Answers {
        forwarder.read_versioned(catalog, keys).await
    }
}

/// The version of a batch store that another node or a client asks for by its number.
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
        })
    }
}
