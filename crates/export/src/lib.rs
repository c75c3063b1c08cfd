//! Exports: all rows of a version, or of a store of a cluster, with the types that their columns had in the input.
//!
//! - [`Rows`]: the rows as Arrow batches, an iterator in bounded memory;
//! - [`export`]: the rows to a Parquet file or to a stream of Arrow IPC;
//! - [`export_differences`]: the keys that differ between two versions to a Parquet file;
//! - [`StoreFollower`]: the changes of a store, as they come; [`Mirror`]: the same, written to a topic of Kafka.
//!
//! A version is scanned where it is, or fetched to this machine first; a batch store is its current version. The rows of hybrid and
//! versioned stores are listed and looked up at a node. It prints nothing and installs no signal handlers: an observer of the crate
//! `push` hears of the progress, and its token stops the export.
//!
//! ```no_run
//! use fondaco_export::{Rows, Selection, Source};
//! use fondaco_push::{CancelToken, Job, Quiet};
//!
//! let (observer, cancel) = (Quiet, CancelToken::default());
//! let job = Job { observer: &observer, cancel: &cancel };
//! let selection = Selection::all_of(Source::Version("/data/pymk-1".parse()?));
//! for batch in Rows::open(&selection, job)? {
//!     println!("{} rows", batch?.num_rows());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod differences;
mod error;
mod follow;
mod mirror;
mod rows;
mod selection;
mod store_records;
mod version_records;
mod write;

pub use differences::{DifferenceReport, Differences, export_differences};
pub use error::ExportError;
pub use follow::{Followed, StoreFollower};
pub use mirror::{Mirror, MirrorFailure, MirrorReport};
pub use rows::Rows;
pub use selection::{Selection, Source};
pub use write::{ExportReport, Format, Output, export};
