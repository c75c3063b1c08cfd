//! Shared state of a cluster: a small, durable tree of entries.
//!
//! - [`Coordination`]: the interface of every implementation: conditional writes, transactions, ephemeral entries,
//!   watches, elections;
//! - [`EmbeddedCoordination`]: in one directory, for the sessions of one process;
//! - [`ZooKeeperCoordination`]: in ZooKeeper, for all processes of a cluster.
//!
//! It is not a database and not a queue: entries are small, few, and written whole. Every write names the revision that
//! it replaces, so that two writers never overwrite each other unnoticed. An acknowledged write is durable. The callers
//! define what the entries mean.
//!
//! ```
//! use fondaco_coordination::{Coordination, CoordinationError, EmbeddedCoordination, WatchEvent};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let tree = EmbeddedCoordination::open(dir.path())?;
//! let (one, other) = (tree.session(), tree.session());
//! let stores = "stores".parse()?;
//! let watch = other.watch(&[stores])?;
//! assert_eq!(watch.next(Duration::from_secs(1)), Some(WatchEvent::Everything));
//!
//! let path = "stores/pymk".parse()?;
//! let first = one.write(&path, b"version 1", None)?;
//! assert_eq!(watch.next(Duration::from_secs(1)), Some(WatchEvent::Changed([path.clone()].into())));
//!
//! one.write(&path, b"version 2", Some(first))?;
//! let late = other.write(&path, b"version 3", Some(first));
//! assert!(matches!(late, Err(CoordinationError::Conflict { .. })));
//! # Ok(())
//! # }
//! ```

mod election;
mod embedded;
mod entry;
mod error;
mod on_drop;
mod path;
mod service;
mod watch;
mod zookeeper;

pub use election::Election;
pub use embedded::EmbeddedCoordination;
pub use entry::{Change, ENTRY_BYTES_MAX, Entry, Revision};
pub use error::CoordinationError;
pub use path::EntryPath;
pub use service::{Coordination, Session, SessionState};
pub use watch::{Watch, WatchEvent};
pub use zookeeper::{ZooKeeperCoordination, ZooKeeperSettings, ZooKeeperTls};
