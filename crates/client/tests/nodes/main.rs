//! The client against small real servers with scripted behaviour: slow, dead, silent, wrong, mixed.

mod faults;
mod harness;
mod hedging;
mod quorums;
mod reads;
#[path = "../quorum/records.rs"]
mod records;
mod replica;
mod server;
mod topologies;
mod transport;
mod versions;
