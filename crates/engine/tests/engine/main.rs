//! Engines: the contract of all, the guarantees of those on disk, and what is particular to each.

mod cache;
mod conformance;
mod durable;
mod log;
mod losses;
mod mysql;
