//! Whether the coordination service's data continues what was seen before.
//!
//! Lasting entries are only ever replaced by later ones. So a service that has lost some, or shows older ones than
//! before, was wiped or put back to an older copy. Its data is then no evidence of anything: the process keeps what it
//! knows, and waits for an operator. An operator's decision is a cluster record with more adoptions than the one known.

use super::change::RecordPath;
use super::view::{ClusterView, Revised};
use crate::node::Identity;

/// How the entries of a coordination service do not continue those that were seen before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// There is no cluster where one was.
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
        "this process belongs to cluster {known}, and the coordination service has cluster {found}: its entries were \
         lost and another cluster was made, or its address or root is wrong; {}",
        KEPT
    )]
    OtherCluster {
        /// The cluster that was seen before.
        known: Identity,
        /// The one that is there.
        found: Identity,
    },
    /// An entry has an earlier revision than it had.
    #[error(
        "entry {entry} of the coordination service is at revision {found}, and was at {known} before: the service was put \
         back to an older copy; {}",
        KEPT
    )]
    WentBack {
        /// Which.
        entry: RecordPath,
        /// The revision that was seen before.
        known: u64,
        /// The one that it has.
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
        /// The one that it has.
        found: u64,
    },
    /// Fewer stores were ever created than before. Revisions do not always tell: a service that was put back gives out new
    /// ones, which may have passed those seen before by the time they are looked at.
    #[error(
        "by the coordination service {found} stores were ever created, and {known} by what was seen before: the service was \
         put back to an older copy; {}",
        KEPT
    )]
    FewerStores {
        /// How many were, by what was seen before.
        known: u64,
        /// How many the service reports.
        found: u64,
    },
    /// An entry is missing that is never deleted.
    #[error(
        "entry {entry} of the coordination service is missing, though it is never deleted; {}",
        KEPT
    )]
    EntryGone {
        /// Which.
        entry: RecordPath,
    },
}

/// The consequence.
const KEPT: &str = "this process goes on with what it saw last and deletes nothing; correct the configuration, or write \
                    what this node remembers back: fondaco cluster adopt, or declare the present entries to be the \
                    true ones: fondaco cluster adopt --present";

impl ClusterView {
    /// Checks that this view is a later one than `former`, of the same cluster.
    ///
    /// Stores are looked at only where both have them: whether one that is gone was dropped, its record in
    /// [`dropped`](Self::dropped) says.
    ///
    /// # Errors
    /// It is not.
    pub fn check_continues(&self, former: &Self) -> Result<(), Discontinuity> {
        let Some(known) = &former.cluster else { return Ok(()) };
        let Some(found) = &self.cluster else {
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
            check(|| RecordPath::Routing, known, self.routing.as_ref())?;
            let known = known.record.epoch();
            let found = self.routing.as_ref().map_or(known, |found| found.record.epoch());
            if found < known {
                return Err(Discontinuity::OlderTable { known, found });
            }
        }
        if let Some(known) = &former.numbers {
            check(|| RecordPath::Numbers, known, self.numbers.as_ref())?;
            let known = known.record.stores_created;
            let found = self.numbers.as_ref().map_or(0, |found| found.record.stores_created);
            if found < known {
                return Err(Discontinuity::FewerStores { known, found });
            }
        }
        for (&id, known) in &former.nodes {
            check(|| RecordPath::Node(id), known, self.nodes.get(&id))?;
        }
        for (name, known) in &former.stores {
            if let Some(found) = self.stores.get(name) {
                check(|| RecordPath::Store(name.clone()), known, Some(found))?;
            }
        }
        Ok(())
    }
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
