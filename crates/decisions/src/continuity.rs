//! Whether the data of the coordination service continues the data seen before.
//!
//! Persistent entries are only ever replaced by later ones. So if a service has lost some, or shows older ones than
//! before, it was wiped or restored from an older copy. Its data is then no evidence of anything: the process keeps its
//! view, and waits for an operator. An operator's decision is a cluster record with more adoptions than the known one.

use fondaco_model::Identity;
use fondaco_model::cluster::{ClusterView, Revised};

use crate::change::RecordPath;

/// How the entries of a coordination service fail to continue those that were seen before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// The cluster record is missing.
    #[error(
        "the coordination service has no entries of cluster {known} any more: it was emptied, or its address or root is \
         wrong; {}",
        KEPT
    )]
    ClusterGone {
        /// The cluster that was seen before.
        known: Identity,
    },
    /// There is another cluster.
    #[error(
        "this process belongs to cluster {known}, but the coordination service has cluster {found}: its entries were \
         lost and another cluster was made, or its address or root is wrong; {}",
        KEPT
    )]
    OtherCluster {
        /// The cluster that was seen before.
        known: Identity,
        /// The cluster in the coordination service.
        found: Identity,
    },
    /// An entry has an earlier revision than it had.
    #[error(
        "entry {entry} of the coordination service is at revision {found}, and was at {known} before: the service was put \
         back to an older copy; {}",
        KEPT
    )]
    WentBack {
        /// The entry.
        entry: RecordPath,
        /// The revision that was seen before.
        known: u64,
        /// Its present revision.
        found: u64,
    },
    /// The routing table has an earlier epoch than it had.
    #[error(
        "the routing table of the coordination service has epoch {found}, and had {known} before: the service was put \
         back to an older copy; {}",
        KEPT
    )]
    OlderTable {
        /// The epoch that was seen before.
        known: u64,
        /// Its present epoch.
        found: u64,
    },
    /// Fewer stores were ever created than before. Revisions alone do not always show this: a restored service gives
    /// out new revisions, which may have passed the seen ones by the next look.
    #[error(
        "the coordination service has counted {found} created stores, and had counted {known} before: the service was \
         put back to an older copy; {}",
        KEPT
    )]
    FewerStores {
        /// The number that was seen before.
        known: u64,
        /// The number in the service.
        found: u64,
    },
    /// An entry that is never deleted is missing.
    #[error(
        "entry {entry} of the coordination service is missing, though it is never deleted; {}",
        KEPT
    )]
    EntryGone {
        /// The entry.
        entry: RecordPath,
    },
}

/// The consequence and the remedy.
const KEPT: &str = "this process keeps its last view and deletes nothing; correct the configuration, or write back \
                    the entries that this node remembers: fondaco cluster adopt, or declare the present entries to be \
                    the true ones: fondaco cluster adopt --present";

/// Checks that a view continues a former one, of the same cluster.
///
/// Stores are compared only if both views have them: whether a missing one was dropped is recorded in
/// [`dropped`](ClusterView::dropped).
///
/// # Errors
/// It does not.
pub fn check_continues(view: &ClusterView, former: &ClusterView) -> Result<(), Discontinuity> {
    let Some(known) = &former.cluster else { return Ok(()) };
    let Some(found) = &view.cluster else {
        let known = known.identity.clone();
        return Err(Discontinuity::ClusterGone { known });
    };
    if found.adoptions > known.adoptions {
        return Ok(());
    }
    if found.identity != known.identity {
        return Err(Discontinuity::OtherCluster {
            known: known.identity.clone(),
            found: found.identity.clone(),
        });
    }
    if let Some(known) = &former.routing {
        check(|| RecordPath::Routing, known, view.routing.as_ref())?;
        let known = known.record.epoch();
        let found = view.routing.as_ref().map_or(known, |found| found.record.epoch());
        if found < known {
            return Err(Discontinuity::OlderTable { known, found });
        }
    }
    if let Some(known) = &former.numbers {
        check(|| RecordPath::Numbers, known, view.numbers.as_ref())?;
        let known = known.record.stores_created;
        let found = view.numbers.as_ref().map_or(0, |found| found.record.stores_created);
        if found < known {
            return Err(Discontinuity::FewerStores { known, found });
        }
    }
    for (&id, known) in &former.nodes {
        check(|| RecordPath::Node(id), known, view.nodes.get(&id))?;
    }
    for (name, known) in &former.stores {
        if let Some(found) = view.stores.get(name) {
            check(|| RecordPath::Store(name.clone()), known, Some(found))?;
        }
    }
    Ok(())
}

fn check<T>(
    entry: impl FnOnce() -> RecordPath,
    known: &Revised<T>,
    found: Option<&Revised<T>>,
) -> Result<(), Discontinuity> {
    match found.map(|found| found.revision) {
        Some(found) if found < known.revision => Err(Discontinuity::WentBack {
            entry: entry(),
            known: known.revision,
            found,
        }),
        Some(_) => Ok(()),
        None => Err(Discontinuity::EntryGone { entry: entry() }),
    }
}
