//! Queries over a graph in memory.

mod memory;
mod plans;
mod refused;
mod table;
