//! Versions on disk: written, opened, looked up, and damaged.

#[path = "../written/files.rs"]
mod files;
#[path = "../written/mod.rs"]
mod written;

mod compare;
mod corruption;
mod formats;
mod lifetimes;
mod look_up;
mod mutations;
mod partial;
mod patch;
mod recent;
mod scan_reads;
mod unreadable;
mod vectors;
