//! Batch stores: look-ups, forwarding, swaps and limits.

mod harness;

mod canaries;
mod clients;
mod faults;
mod forwarding;
mod limits;
mod scans;
mod versions;
