//! A node, tested from outside: through its control port, its catalog, and kill signals.

mod access;
mod crash;
mod disk_full;
mod document;
mod files;
mod greedy_clients;
mod harness;
mod lost;
mod power;
mod pushes;
#[expect(dead_code, reason = "the tests of clusters use the rest of it")]
mod resp;
mod security;
mod stores;
mod streams;
mod swaps;
mod uploads;
#[path = "../../../format/tests/written/files.rs"]
mod version_files;
#[path = "../../../format/tests/written/mod.rs"]
mod written;
