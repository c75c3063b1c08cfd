//! Streams of events and versions through topics, and the overlays that they feed.

mod kafka;
mod overlays;
mod updates;
mod versions;
