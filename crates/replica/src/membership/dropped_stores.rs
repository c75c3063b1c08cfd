//! The chore that deletes the tables of stores that were dropped, when they are not to be kept any longer. A table of a
//! store of which no record says anything is kept, and named: the record may have been lost.
//!
//! It waits for the writes that are under way, and for the engine, which may take minutes while the storage does not keep
//! up. Nothing waits for it: the agent goes on, and a store that gets a table back that is being deleted is opened later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::background::Background;
use crate::error::ReplicasError;
use crate::shared::Shared;
use crate::worker::Signal;

/// What the names of the tables of stores begin with.
pub(crate) const STORE_PREFIX: &str = "store-";

/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a view says of tables.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Those of stores that there are.
    pub(crate) wanted: BTreeSet<String>,
    /// Those of stores that were dropped, and whether each is to be kept for now. What is only in memory is not.
    pub(crate) dropped: BTreeMap<String, bool>,
}

/// What is to be deleted.
#[derive(Debug)]
pub(crate) struct Dropping {
    pub(crate) signal: Arc<Signal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the newest view says; none if nothing is to be deleted by it, or all was.
    wanted: Option<Arc<Tables>>,
    /// Tables of stores that no record names.
    unexplained: BTreeSet<String>,
    /// The table that is being deleted.
    deleting: Option<String>,
}

impl Dropping {
    /// Nothing is to be deleted.
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        Self {
            signal,
            state: Mutex::default(),
        }
    }

    /// From now on this holds of tables; `None` if no table may be deleted.
    pub(crate) fn want(&self, wanted: Option<Tables>) {
        self.state().wanted = wanted.map(Arc::new);
    }

    /// The tables of stores that no record names.
    pub(crate) fn unexplained(&self) -> Vec<String> {
        self.state().unexplained.iter().cloned().collect()
    }

    fn note_unexplained(&self, unexplained: BTreeSet<String>) {
        let mut state = self.state();
        for table in unexplained.difference(&state.unexplained) {
            tracing::error!(
                table,
                "no record names the store of this table or says that it was dropped: it is kept"
            );
        }
        state.unexplained = unexplained;
    }

    /// Whether a table is being deleted.
    pub(crate) fn is_deleting(&self, table: &str) -> bool {
        self.state().deleting.as_deref() == Some(table)
    }

    /// Begins to delete a table. Whether it may be: nothing else has become wanted meanwhile.
    fn begin(&self, table: &str, wanted: &Arc<Tables>) -> bool {
        let mut state = self.state();
        let is_newest = state.wanted.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, wanted));
        if is_newest {
            state.deleting = Some(table.to_owned());
        }
        is_newest
    }

    /// All is deleted that is not wanted.
    fn done(&self, wanted: &Arc<Tables>) {
        let mut state = self.state();
        if state.wanted.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, wanted)) {
            state.wanted = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Deletes tables until it is told to end.
pub(crate) async fn run(background: Background) {
    let shared = &background.shared;
    let dropping = &shared.dropping;
    loop {
        // After a panic a table may be left that no thread deletes.
        dropping.state().deleting = None;
        let wanted = dropping.state().wanted.clone();
        if let Some(wanted) = wanted
            && wait_committed(&background).await
        {
            match drop_others(shared, &wanted) {
                Ok(()) => dropping.done(&wanted),
                Err(error) => tracing::warn!(%error, "the tables of dropped stores are not deleted yet: trying again"),
            }
        }
        if !background.sleep(AGAIN).await {
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
            tracing::info!(table, "dropped, with its store");
        }
    }
    shared.dropping.note_unexplained(unexplained);
    Ok(())
}

/// Waits until all that waits now is written. Whether the process goes on.
async fn wait_committed(background: &Background) -> bool {
    for shard in 0..background.shared.shards.len() {
        // Nothing waits at a shard that has ended.
        let _ = background.between(shard, || ()).await;
    }
    !background.has_ended()
}
