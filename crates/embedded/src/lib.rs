//! The embedded reader: a program reads a batch or hybrid store from files that it maps itself, without a server.
//!
//! [`Reader::open`] reads the directory of one version. Any number of threads share a reader, and none waits for another.
//! [`Reader::snapshot`] keeps one version for several calls.
//!
//! [`Reader::follow`] keeps a store of a cluster on the local disk: a thread fetches each new version as a node does, and
//! swaps it in. Of a hybrid store another one reads the topic of events, by the code that nodes use. What is not here is
//! asked from the cluster.
//!
//! It is not a cache of single keys: a reader holds whole partitions, as `fondaco build` wrote them. It is no member of the
//! cluster either: a push does not wait for it. Versioned stores, which clients write, and graphs are read from a cluster.
//!
//! Invariants: a call sees exactly one version, completely written and verified. A damaged byte is an error, and never
//! data. A key that is reported absent is absent: a key of a partition that is not in the directory is an error.
//!
//! ```
//! # use fondaco_builder::{BuildOptions, Progress, ValueSelection, build};
//! # use fondaco_model::PartitionCount;
//! # use fondaco_storage::Location;
//! use fondaco_embedded::Reader;
//! # let dir = tempfile::tempdir()?;
//! # let (rows, path) = (dir.path().join("rows.csv"), dir.path().join("cities-1"));
//! # std::fs::write(&rows, "id,city\n9,Pisa\n10,Lucca\n")?;
//! # let (inputs, output) = (vec![rows.display().to_string()], Location::local(&path));
//! # let (four, temporary) = (PartitionCount::try_from(4)?, dir.path().to_owned());
//! # let mut options = BuildOptions::new("cities".parse()?, four, inputs, "id", output, temporary);
//! # options.value = ValueSelection::Column("city".into());
//! # build(&options, &Progress::default())?;
//!
//! let reader = Reader::open(&path)?;
//! assert_eq!(reader.get(b"9")?.as_deref(), Some(&b"Pisa"[..]));
//!
//! let values = reader.get_many(&["9", "10", "11"])?;
//! assert_eq!(values.iter().collect::<Vec<_>>(), [Some(&b"Pisa"[..]), Some(b"Lucca"), None]);
//!
//! let mut records = 0;
//! for piece in reader.scan(None)? {
//!     records += piece?.len();
//! }
//! assert_eq!(records, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod events;
mod fallback;
mod follow;
mod reader;
mod scan;
mod snapshot;
mod values;

pub use error::EmbeddedError;
pub use events::StreamProgress;
pub use follow::{FollowOptions, OnSwap, State, Status, Swap};
pub use fondaco_admin::Endpoint;
pub use fondaco_format::{Manifest, Record, Schema};
pub use fondaco_stream::LostRecords;
pub use reader::Reader;
pub use scan::Scan;
pub use snapshot::{Snapshot, Value};
pub use values::Values;

/// The examples of the manual, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedded.md")]
struct Manual;
