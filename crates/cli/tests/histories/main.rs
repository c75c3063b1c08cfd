//! Stores that are written to, held to what they promise: clients at work on a real cluster whose processes, network,
//! disks and clocks fail, and each answer compared with all that was done before.
//!
//! The checker is the one of the simulated cluster. There, everything happens in one thread and from a seed again and
//! again; here are sockets, files and threads, which do not repeat themselves: a seed says what is tried, and when.

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
