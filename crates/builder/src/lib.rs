//! The offline builder: Parquet, Avro, JSON lines, CSV and Arrow in, one immutable version out.
//!
//! [`build`] reads all rows of the input, makes a key and a value of each, and sorts them into the order of the
//! format with a bounded amount of memory. Then it writes the chunks of a version and, as the last step, its
//! manifest. It is plain synchronous code in a few threads. It is independent of nodes and pushes, and does not
//! decide where data is served.
//!
//! Data flows through the modules in this order: `input` → `sort` → `output`. [`build_graph`] builds graphs from lists
//! of edges: its data passes through several sorts. [`build_increment`] makes a version from an earlier one and a
//! difference, and patches from which nodes make the changed chunks themselves. [`build_batches`] takes rows in memory, and
//! [`task`] divides a build into tasks of an engine such as Spark.
//!
//! Invariants: a version has a manifest only if all of it is durable. The same input makes the same records, with any
//! number of threads and any memory. A row is never dropped silently: it becomes a record, a counted duplicate or a
//! counted bad row, or the build fails.

mod build;
mod declaration;
mod error;
mod graph;
mod increment;
mod input;
mod memory;
mod options;
mod output;
mod progress;
mod report;
mod samples;
mod schema_change;
mod sort;
pub mod task;

pub use build::{build, build_batches};
pub use declaration::Declaration;
pub use error::BuildError;
pub use graph::{GraphOptions, GraphReport, KnownIds, Types, UnknownVertices, build_graph};
pub use increment::{IncrementOptions, IncrementReport, build_increment, build_increment_batches};
pub use input::Batches;
pub use options::{
    BuildOptions, ChoiceError, InputFormat, NonFinite, Numbers, OnDuplicate, ReadOptions, RecordTimes, ValueSelection,
};
pub use progress::{Phase, Progress, ProgressSnapshot, call_before_sorting};
pub use report::{BadRow, BuildReport, RowPlace};
pub use schema_change::{ChangedColumn, SchemaChange};
