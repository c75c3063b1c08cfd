//! Simulations from many seeds, and rules broken on purpose, which must be detected.

mod every_seed;
mod flaws;
mod seeds;
mod streams;
mod thousand_nodes;
mod versioned;
