//! The client library: its logic without a network, its quorums, and real connections to scripted nodes.

mod fan_out;
mod logic;
mod nodes;
mod quorum;
mod records;
