//! The replicas of nodes: what they store, what survives, and how they converge.

mod cluster;
mod counters;
mod direct;
mod dropped;
mod exchanges;
mod failovers;
mod forgetting;
mod full_disk;
mod full_keys;
mod handoff;
mod kills;
mod loops;
mod losses;
mod members;
mod moves;
mod one_node;
mod pages;
mod panics;
mod past;
mod quotas;
mod reboots;
mod rot;
mod sectors;
mod splits;
mod stuck;
mod writes;
