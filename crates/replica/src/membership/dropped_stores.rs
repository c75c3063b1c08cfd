//! The chore that deletes the tables of dropped stores, when they need not be kept any longer. A table whose store no
//! record names is kept and reported: the record may have been lost.
//!
//! It waits for writes in progress, and for the engine, which may take minutes while the storage is slow. Nothing waits
//! for it: the agent continues, and a store whose table is being deleted is opened later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::background::Background;
use crate::error::ReplicasError;
use crate::shared::Shared;
use crate::worker::Signal;

/// The prefix of the names of tables of stores.
pub(crate) const STORE_PREFIX: &str = "store-2-";

/// The delay before a failed deletion is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The tables that a cluster state names.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Tables of existing stores.
    pub(crate) wanted: BTreeSet<String>,
    /// Tables of dropped stores, and whether each has to be kept for now. Data that is only in memory is not kept.
    pub(crate) dropped: BTreeMap<String, bool>,
}

/// The tables to be deleted.
#[derive(Debug)]
pub(crate) struct Dropping {
    pub(crate) signal: Arc<Signal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The tables of the newest state; `None` if it allows no deletion, or all were deleted.
    wanted: Option<Arc<Tables>>,
    /// Tables whose stores no record names.
    unexplained: BTreeSet<String>,
    /// The table that is being deleted.
    deleting: Option<String>,
}

impl Dropping {
    /// With nothing to delete.
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        Self {
            signal,
            state: Mutex::default(),
        }
    }

    /// Sets the tables of a new state; `None` if no table may be deleted.
    pub(crate) fn want(&self, wanted: Option<Tables>) {
        self.state().wanted = wanted.map(Arc::new);
    }

    /// The tables whose stores no record names.
    pub(crate) fn unexplained(&self) -> Vec<String> {
        self.state().unexplained.iter().cloned().collect()
    }

    /// Takes note of tables that this state does not name, unless a newer one has arrived.
    fn note_unexplained(&self, unexplained: BTreeSet<String>, wanted: &Arc<Tables>) {
        let mut state = self.state();
        if !state.is_newest(wanted) {
            return;
        }
        for table in unexplained.difference(&state.unexplained) {
            tracing::error!(
                table,
                "no record names the store of this table, not even as dropped: the table is kept"
            );
        }
        state.unexplained = unexplained;
    }

    /// Whether a table is being deleted.
    pub(crate) fn is_deleting(&self, table: &str) -> bool {
        self.state().deleting.as_deref() == Some(table)
    }

    /// Begins to delete a table. Returns false if a newer state arrived meanwhile.
    fn begin(&self, table: &str, wanted: &Arc<Tables>) -> bool {
        let mut state = self.state();
        let is_newest = state.is_newest(wanted);
        if is_newest {
            state.deleting = Some(table.to_owned());
        }
        is_newest
    }

    /// All unwanted tables are deleted.
    fn done(&self, wanted: &Arc<Tables>) {
        let mut state = self.state();
        if state.is_newest(wanted) {
            state.wanted = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn is_newest(&self, wanted: &Arc<Tables>) -> bool {
        self.wanted.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, wanted))
    }
}

/// Deletes tables until it is ended.
pub(crate) async fn run(background: Background) {
    let shared = &background.shared;
    let dropping = &shared.dropping;
    loop {
        // After a panic there may be a table marked that no thread deletes.
        dropping.state().deleting = None;
        let wanted = dropping.state().wanted.clone();
        if let Some(wanted) = wanted
            && wait_committed(&background).await
        {
            match drop_others(shared, &wanted) {
                Ok(()) => dropping.done(&wanted),
                Err(error) => tracing::warn!(%error, "cannot delete the tables of dropped stores yet: retrying"),
            }
        }
        if !background.sleep(RETRY_DELAY).await {
            return;
        }
    }
}

/// Deletes the tables of stores that were dropped and are not kept.
fn drop_others(shared: &Shared, wanted: &Arc<Tables>) -> Result<(), ReplicasError> {
    let mut unexplained = BTreeSet::new();
    for engine in &shared.engines {
        for table in engine.tables()? {
            if !table.starts_with(STORE_PREFIX) || wanted.wanted.contains(&table) {
                continue;
            }
            match wanted.dropped.get(&table) {
                Some(true) if engine.is_durable() => continue,
                Some(_) => {}
                None => {
                    unexplained.insert(table);
                    continue;
                }
            }
            if !shared.dropping.begin(&table, wanted) {
                return Ok(());
            }
            let dropped = engine.drop_table(&table);
            shared.dropping.state().deleting = None;
            dropped?;
            tracing::info!(table, "table of a dropped store deleted");
        }
    }
    shared.dropping.note_unexplained(unexplained, wanted);
    Ok(())
}

/// Waits until all queued writes are committed. Returns whether the process continues.
async fn wait_committed(background: &Background) -> bool {
    for shard in 0..background.shared.shards.len() {
        // Nothing is queued at a shard that has ended.
        let _ = background.between(shard, || ()).await;
    }
    !background.has_ended()
}
