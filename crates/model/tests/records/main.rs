//! Versioned stores as their users see them: writes, merges, and the reads after them.

mod bytes;
mod clocks;
mod collection;
mod counters;
mod expired;
mod fields;
mod history;
mod laws;
mod literature;
mod pruning;
mod resolution;
mod writes;
