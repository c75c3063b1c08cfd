//! Reads and writes at quorums, driven by nothing but a seed, against replicas that keep real records: what must
//! hold whatever nodes do, and what is to happen in each of the cases that there are.

mod changes;
mod handoff;
mod moves;
mod properties;
mod reads;
mod script;
mod topologies;
mod world;
mod writes;
