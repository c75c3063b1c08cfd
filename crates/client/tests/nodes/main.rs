//! The client against small real servers that do as they are told: slow, dead, silent, wrong, mixed.

mod faults;
mod harness;
mod hedging;
mod quorums;
mod reads;
mod replica;
mod server;
mod topologies;
mod transport;
mod versions;
