//! The embedded reader, through its public interface, against real versions and real nodes.

mod cluster;
mod faults;
mod follow;
mod node;
mod open;
mod streams;
mod versions;
