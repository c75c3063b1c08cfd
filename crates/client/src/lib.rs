//! The client library of fondaco: look-ups over all nodes of a cluster.
//!
//! A [`Client`] knows where keys are, and asks the nodes that have them, many at a time over few connections. It
//! answers a whole batch from one version of each store. If a node fails, it asks another replica; if a node is slow, a
//! second one, within budgets. A node that does not answer gets no requests until it answers a probe.
//!
//! - [`Client`], its [builder](ClientBuilder), [`ReadOptions`] for one request;
//! - [`trusting`]: TLS to nodes whose certificates are in a file;
//! - [`quorum`]: versioned stores, which can be written, and the requests to their replicas;
//! - [`read`]: the logic of look-ups, without I/O, to be simulated or extended;
//! - [`trace`]: spans of sampled requests;
//! - [`operation`]: the interface that drives look-ups and operations on versioned stores.
//!
//! It is not a general Redis client: it sends only `FONDACO.NONCE`, `FONDACO.PROVE`, `FONDACO.READ`,
//! `FONDACO.TOPOLOGY`, and requests to replicas.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use fondaco_client::{Client, Partial, ReadOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().seeds(["10.0.0.1:6500", "10.0.0.2:6500"]).connect().await?;
//! let store = "pymk".parse()?;
//! let value = client.get(&store, b"42").await?;
//!
//! let options = ReadOptions {
//!     deadline: Duration::from_millis(50),
//!     partial: Partial::PerKey,
//!     ..ReadOptions::default()
//! };
//! let keys = [(store.clone(), "42"), (store, "43")];
//! let reply = client.get_many(&keys, &options).await?;
//! for value in &reply.values {
//!     match value {
//!         Ok(Some(value)) => println!("{} bytes", value.len()),
//!         Ok(None) => println!("no such key"),
//!         Err(error) => println!("not known: {error}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod alarm;
mod ask;
mod asks;
mod backoff;
mod builder;
mod bulk_write;
mod client;
mod clock;
mod driver;
mod error;
mod fields;
pub mod graph;
mod link;
mod members;
pub mod operation;
mod options;
pub mod quorum;
pub mod read;
mod sets;
mod stats;
mod streamed;
mod topology;
pub mod trace;
mod versioned;

pub use builder::ClientBuilder;
pub use client::Client;
pub use error::ClientError;
pub use fields::{decode_query, encode_query};
pub use fondaco_ids::{Multiplicity, SetAnswer, SetQuery};
pub use fondaco_protocol::{TrustError, WireKey, refused_certificate, trusting};
pub use options::{CanaryChoice, Partial, PutOptions, ReadOptions};
pub use read::{BatchReply, Chunk, PinnedStore};
pub use sets::{Computed, SetOptions, What};
pub use stats::{ClientStats, NodeStats};
pub use streamed::Streamed;
pub use versioned::Siblings;
