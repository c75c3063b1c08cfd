//! The paths of entries in the coordination service that the model does not define, and the paths that each process
//! watches.

use fondaco_coordination::{CoordinationError, EntryPath};
use fondaco_model::NodeId;
use fondaco_model::cluster::RecordPath;

/// The entry of the settings that may change while processes run.
pub(crate) const SETTINGS: &str = "settings";

/// The count of a node's data directory: written and read by the node alone, and watched by no process.
pub(crate) fn count(node: NodeId) -> Result<EntryPath, CoordinationError> {
    format!("counts/{node}").parse()
}

/// The last changes that people made: written by the process that carries a change out, read when it is asked for.
pub(crate) const AUDIT: &str = "audit";

/// What the leading controller remembers about machines on demand: read and written by it alone.
pub(crate) const MACHINES: &str = "machines";

/// The folder of the leader election.
pub(crate) const ELECTION: &str = "election";

/// The entries that every process watches.
const MEMBERS_LOOK_AT: [&str; 11] = [
    "cluster",
    "routing",
    "numbers",
    "nodes",
    "announcements",
    "routers",
    "plans",
    "users",
    "stores",
    // After the stores: when a store's entry is gone, the record of its dropping can be read.
    "dropped",
    SETTINGS,
];

/// Watched by controllers only: it changes often, and its size is nodes times stores.
pub(crate) const REPORTS: &str = "reports";

/// The folders of entries.
pub(crate) const FOLDERS: [&str; 8] = [
    "nodes",
    "announcements",
    "routers",
    "plans",
    "users",
    "stores",
    "dropped",
    REPORTS,
];

/// The path of an entry.
pub(crate) fn path(record: &RecordPath) -> Result<EntryPath, CoordinationError> {
    record.to_string().parse()
}

/// The entries that a process watches; controllers watch reports, too.
pub(crate) fn watched(decides: bool) -> Result<Vec<EntryPath>, CoordinationError> {
    let all = MEMBERS_LOOK_AT.into_iter().chain(decides.then_some(REPORTS));
    all.map(str::parse).collect()
}
