//! What answers for the keys of stores, one [`Source`] for each kind of store.
//!
//! A source says at once where the answer for a key is: in a chunk of an open version, which may be in memory or on disk;
//! known, since this node's replica has the record in memory; or with replicas or other nodes. All keys of a window that are
//! with others are asked for together.
//!
//! A store that has both a version and later writes is a source of its own: it looks for a later write first, where a
//! versioned store would, and in the version only if there is none. Answers of versions may be cached under the version's
//! number, for they never change; those of replicas are not cached anywhere but in the replica.

use fondaco_format::Probe;

use super::buffers::FREE_BYTES;
use super::refusal;
use super::session::Admission;
use crate::catalog::{Catalog, NOT_OPEN, VersionedStore};
use crate::forward::{Answers, Forwarder, ValueAnswer, Wanted};

/// Where the answer for a key is.
#[derive(Debug)]
pub(in crate::server) enum Located {
    /// In an open version, which stands at this place among the catalog's open ones.
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
    async fn ask(forwarder: &Forwarder, catalog: &Catalog, keys: &[Wanted<'_>]) -> Answers;
}

/// A batch store: its current version.
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
            if probe.is_held() {
                return Ok(Located::Version { version, probe });
            }
        }
        refusal::check_elsewhere(catalog, self.store)?;
        Ok(Located::Nodes)
    }

    async fn ask(forwarder: &Forwarder, catalog: &Catalog, keys: &[Wanted<'_>]) -> Answers {
        forwarder.read(catalog, keys).await
    }
}

impl Source for Versioned<'_> {
    fn locate(&self, key: &[u8], admission: &Admission<'_>) -> Result<Located, String> {
        let answer = admission.forwarder.recall(admission.catalog, self.0, key);
        // A long value is read again, within the memory that there is for answers of replicas.
        let is_short = |answer: &ValueAnswer| !matches!(answer, Ok(Some(value)) if value.len() as u64 > FREE_BYTES);
        Ok(answer.filter(is_short).map_or(Located::Replicas, Located::Known))
    }

    async fn ask(forwarder: &Forwarder, catalog: &Catalog, keys: &[Wanted<'_>]) -> Answers {
        forwarder.read_versioned(catalog, keys).await
    }
}
