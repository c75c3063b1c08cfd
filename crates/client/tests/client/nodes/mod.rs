//! The client against small real servers with scripted behaviour: slow, dead, silent, wrong, mixed.

mod faults;
mod graphs;
mod harness;
mod hedging;
mod quorums;
mod reads;
mod replica;
mod server;
mod topologies;
mod transport;
mod versions;
