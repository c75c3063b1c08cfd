//! The events of a stream on top of the versions of a hybrid store: read from the topic into an engine in the reader's directory,
//! by the overlays and feeds that nodes use.
//!
//! - [`description`]: the stream of a version, as the cluster describes it;
//! - [`streams`]: the engine, the thread that reads the topic, and the overlay of each version;
//! - [`layer`]: the events on top of one version;
//! - [`engine`]: the engine, and what happens if it has lost writes;
//! - [`schemas`], [`begun`]: questions to the cluster while events are read.

mod begun;
mod description;
mod engine;
mod layer;
mod schemas;
mod streams;

pub(crate) use description::StreamOf;
pub use layer::StreamProgress;
pub(crate) use layer::{Layer, ReadStream};
pub(crate) use streams::{Streams, StreamsOptions, has_events};
