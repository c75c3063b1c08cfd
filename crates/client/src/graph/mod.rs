//! Queries over graphs.

mod source;

pub use source::{GraphSource, Keys, VERSION_CHANGED};
