//! Fetching versions, and parts of them, from sources that fail, give wrong bytes, and are slow.

#[path = "../../../format/tests/written/files.rs"]
mod files;
mod mounted;
mod on_demand;
mod one_source;
mod partitions;
mod peers;
mod place;
mod rebuilds;
mod remote;
mod several;
mod sharing;
mod siblings;
#[path = "../../../format/tests/written/mod.rs"]
mod written;
