//! The paths of entries in the coordination service that the model does not define, and the paths that each process
//! watches.

use fondaco_coordination::{CoordinationError, EntryPath};
use fondaco_decisions::RecordPath;
use fondaco_model::NodeId;

/// Every entry that a cluster has, by its path; `docs/coordination.md` says what each one is.
pub const ENTRIES: [&str; 17] = [
    "cluster",
    "routing",
    "plans/N",
    "nodes/ID",
    "announcements/IDENTITY",
    "reports/ID",
    "routers/IDENTITY",
    "numbers",
    "stores/NAME",
    "dropped/ID",
    "schemas/STORE-ID",
    "counts/ID",
    "machines",
    "settings",
    "users/NAME",
    "audit",
    "election/candidate-…",
];

/// The entry of the settings that may change while processes run.
pub(crate) const SETTINGS: &str = "settings";

/// The count of a node's data directory: written and read by the node alone, and watched by no process.
pub fn count(node: NodeId) -> Result<EntryPath, CoordinationError> {
    format!("counts/{node}").parse()
}

/// The last changes that people made: written by the process that carries a change out, read when it is asked for.
pub(crate) const AUDIT: &str = "audit";

/// The state of machines on demand that the leading controller remembers: read and written by it alone.
pub const MACHINES: &str = "machines";

/// The folder of the leader election.
pub const ELECTION: &str = "election";

/// The entries that every process watches.
const WATCHED_BY_ALL: [&str; 12] = [
    "cluster",
    "routing",
    "numbers",
    "nodes",
    "announcements",
    "routers",
    "plans",
    "users",
    // Before the stores: when the entry of a new store is read, its schemas are known.
    "schemas",
    "stores",
    // After the stores: when a store's entry is gone, the record of its dropping can be read.
    "dropped",
    SETTINGS,
];

/// Watched by controllers only: it changes often, and its size is nodes times stores.
pub(crate) const REPORTS: &str = "reports";

/// The folders of entries.
pub(crate) const FOLDERS: [&str; 9] = [
    "nodes",
    "announcements",
    "routers",
    "plans",
    "users",
    "stores",
    "dropped",
    "schemas",
    REPORTS,
];

/// The path of an entry.
pub fn path(record: &RecordPath) -> Result<EntryPath, CoordinationError> {
    record.to_string().parse()
}

/// The entries that a process watches; controllers watch reports, too.
pub fn watched(decides: bool) -> Result<Vec<EntryPath>, CoordinationError> {
    let all = WATCHED_BY_ALL.into_iter().chain(decides.then_some(REPORTS));
    all.map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_entry_is_in_the_list() {
        let first = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
        let listed: BTreeSet<String> = ENTRIES.iter().map(|path| first(path)).collect();
        let watched = watched(true).unwrap();
        let count = count(NodeId::FIRST).unwrap();
        let used = watched.iter().chain([&count]).map(|path| first(path.as_str()));
        let used: BTreeSet<String> = used.chain([AUDIT, MACHINES, ELECTION].map(str::to_owned)).collect();
        assert_eq!(listed, used);
        for folder in FOLDERS {
            assert!(
                ENTRIES.iter().any(|path| path.starts_with(&format!("{folder}/"))),
                "{folder}"
            );
        }
    }
}
