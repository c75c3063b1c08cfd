//! Where a cluster agrees: a small tree of entries that survives anything.
//!
//! - [`Coordination`]: what every implementation offers: conditional writes, transactions, entries that go
//!   with their session, watches, elections;
//! - [`EmbeddedCoordination`]: in one directory, for the sessions of one process;
//! - [`ZooKeeperCoordination`]: in ZooKeeper, for all processes of a cluster.
//!
//! It is not a database and not a queue: entries are small, few, and written whole. Every write names the
//! revision that it replaces, so that two writers never overwrite each other unseen. An acknowledged write
//! is durable. What the entries mean is their owners' business.

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
pub use zookeeper::{ZooKeeperCoordination, ZooKeeperSettings};
