//! Reads and writes at quorums, driven by a seed, against replicas that keep real records: the invariants in all cases,
//! and the expected behaviour case by case.

mod changes;
mod handoff;
mod moves;
mod properties;
mod reads;
mod script;
mod topologies;
mod world;
mod writes;
