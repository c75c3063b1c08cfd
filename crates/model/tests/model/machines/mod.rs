//! Machines on demand: when nodes are requested, enlarged and returned, and when they are not.

mod days;
mod decisions;
