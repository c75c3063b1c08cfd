//! Streams of events and versions through topics, and the overlays that they feed.

mod centers;
mod kafka;
mod overlay;
mod overlays;
mod updates;
mod values;
mod versions;
