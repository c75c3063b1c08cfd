//! The decisions of a cluster, of its balance and its machines, and versioned stores.

mod advice;
mod balance;
mod balance_days;
mod cluster;
mod load;
mod machines;
mod placement;
mod versioned;
