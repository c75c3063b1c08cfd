//! Graphs in stores: how vertices and edges are keys and values, and how queries are answered from them.
//!
//! A graph is one store, so that all of it is pushed, swapped, rolled back and pinned together. [`keys`] has its
//! keys, [`Description`] and [`Vertex`] are their values. A [`Source`] reads the store, wherever it is. Queries use
//! nothing else.

pub mod keys;
pub mod query;

mod description;
mod operations;
mod selection;
mod source;
mod vertex;

pub use description::{Description, EdgeType};
pub use operations::{Common, Network, Relation, Way, common, distances, has_common, network, shortest_path};
pub use selection::Selection;
pub use source::{Ask, Source};
pub use vertex::Vertex;
