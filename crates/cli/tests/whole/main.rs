//! The whole program, as people and other programs see it: started as a process, used through its command line and its
//! ports, killed at any moment.

mod backups;
mod builds;
mod cold;
mod commands;
mod confluent;
mod crashes;
mod documents;
mod expiry;
mod exports;
mod follows;
mod front;
mod increments;
mod inspected;
mod journey;
mod limits;
mod losses;
mod memory;
mod memory_group;
mod node;
mod records;
mod retries;
mod security;
mod starts;
mod store_options;
mod stream_problems;
mod swaps;
mod tasks;
mod together;
mod told;
#[path = "../../../format/tests/written/files.rs"]
mod version_files;
mod versioned_stores;
mod warm;
