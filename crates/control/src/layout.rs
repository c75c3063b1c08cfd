//! Where entries are in the coordination service, besides those that the model names, and what each
//! process looks at.

use fondaco_coordination::{CoordinationError, EntryPath};
use fondaco_model::NodeId;
use fondaco_model::cluster::RecordPath;

/// Where the settings are that may change while processes run.
pub(crate) const SETTINGS: &str = "settings";

/// How far the data directory of a node is: written and read by the node alone, and watched by none.
pub(crate) fn count(node: NodeId) -> Result<EntryPath, CoordinationError> {
    format!("counts/{node}").parse()
}

/// Where controllers stand for election.
pub(crate) const ELECTION: &str = "election";

/// The entries that every process looks at.
const MEMBERS_LOOK_AT: [&str; 9] = [
    "cluster",
    "routing",
    "numbers",
    "nodes",
    "announcements",
    "routers",
    "stores",
    // After the stores: that one was dropped is known when it is gone.
    "dropped",
    SETTINGS,
];

/// What only controllers look at: it changes often, and grows with nodes times stores.
pub(crate) const REPORTS: &str = "reports";

/// The folders of entries, one for each of something.
pub(crate) const FOLDERS: [&str; 6] = ["nodes", "announcements", "routers", "stores", "dropped", REPORTS];

/// The path of an entry.
pub(crate) fn path(record: &RecordPath) -> Result<EntryPath, CoordinationError> {
    record.to_string().parse()
}

/// What a process looks at; controllers look at reports, too.
pub(crate) fn watched(decides: bool) -> Result<Vec<EntryPath>, CoordinationError> {
    let all = MEMBERS_LOOK_AT.into_iter().chain(decides.then_some(REPORTS));
    all.map(str::parse).collect()
}
