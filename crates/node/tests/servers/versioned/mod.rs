//! Versioned stores over RESP: nodes with real replicas, written to and read by Redis clients.

mod access;
mod commands;
mod conversations;
mod faults;
mod harness;
mod like_redis;
mod long_values;
mod pipelines;
mod quorums;
mod tools;
mod updates;
