//! Whole clusters, as operators see them: each process is a real one, coordinated by a real ZooKeeper or, in
//! development clusters, within one process. Processes are killed, cut off from the network, and get full disks and
//! corrupt files.

mod active_active;
mod backups;
mod balance;
mod canaries;
mod changes;
mod clocks;
mod cluster;
mod collector;
mod coordination;
mod deadlines;
mod development;
mod disks;
mod event_sets;
mod event_writes;
mod everywhere;
mod fields;
mod follows;
mod gates;
mod graphs;
mod groups;
mod hook;
mod identities;
mod idle;
mod joint_swaps;
mod large_batches;
mod move_faults;
mod moves;
mod network;
#[allow(dead_code, reason = "shared with the tests of single nodes, which need all of it")]
#[path = "../whole/node.rs"]
mod node;
mod nodes;
mod on_demand;
mod operations;
mod programs;
mod pushes;
mod readers;
mod replicas;
mod rollouts;
mod runbook;
mod schemas;
mod security;
mod sets;
mod sources;
mod space_quotas;
mod splits;
mod store;
mod streams;
mod swaps;
mod templates;
mod through;
mod traces;
mod upgrade;
mod uploads;
mod values;
mod writers;
