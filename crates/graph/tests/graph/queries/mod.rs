//! Queries over a graph in memory.

mod plans;
mod refused;
mod table;
