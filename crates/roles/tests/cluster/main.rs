//! Clusters of several processes, each role as it really runs, in one test process: pushes that survive failures, nodes
//! that come and go, and coordination outages.

mod harness;
#[path = "../node/resp.rs"]
mod resp;
#[path = "../node/harness.rs"]
#[expect(
    dead_code,
    reason = "of the harness of single nodes, only builds and clients are used"
)]
mod single;
#[path = "../../../format/tests/written/files.rs"]
mod version_files;
#[path = "../../../format/tests/written/mod.rs"]
mod written;

mod admission;
mod formats;
mod full_disk;
mod hybrid;
mod lost;
mod mirrored;
mod outages;
mod plans;
mod pushes;
mod put_back;
mod quorums;
mod versioned;
mod zones;
