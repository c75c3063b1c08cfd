//! Versioned stores, checked against their promises: clients use a real cluster whose processes, network, disks and
//! clocks fail, and each answer is compared with the history of all requests.
//!
//! The checker is that of the simulated cluster. The simulation runs in one thread and is repeatable from a seed. These
//! tests use sockets, files and threads, which are not repeatable: a seed only fixes what is tried, and when.

mod clients;
#[allow(dead_code, reason = "shared with the tests of whole clusters, which need all of it")]
#[path = "../cluster/cluster.rs"]
mod cluster;
mod connection;
mod faults;
mod ledger;
mod machines;
#[allow(dead_code, reason = "shared with the tests of single nodes, which need all of it")]
#[path = "../whole/node.rs"]
mod node;
mod promises;
mod settling;
mod stores;
mod streams;
