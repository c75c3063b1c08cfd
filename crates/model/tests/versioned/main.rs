//! Versioned stores as their users see them: what is written, what is merged, and what is then read.

mod bytes;
mod clocks;
mod collection;
mod counters;
mod expired;
mod history;
mod laws;
mod literature;
mod pruning;
mod resolution;
mod writes;
