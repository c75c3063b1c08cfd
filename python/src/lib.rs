//! The native part of the Python package `fondaco`: arguments, types and words.
//!
//! The logic is in the crates below; the names that people use, with their documentation, are in `fondaco/*.py`. A call
//! that waits releases the interpreter lock. Each operation is one future: a blocking client waits for it, and heeds
//! signals meanwhile; an asyncio client returns it as a `Future` of the running loop.

mod arrow;
mod client;
mod control;
mod embedded;
mod fault;
mod fields;
mod graph;
mod keys;
mod objects;
mod options;
mod push;
mod runtime;
mod scan;
mod schemas;
mod sets;
mod values;

/// The module `fondaco._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrow::{Batch, SchemaCapsule, Table};
    #[pymodule_export]
    use crate::client::{Client, connect};
    #[pymodule_export]
    use crate::embedded::{Reader, follow_store, open_version};
    #[pymodule_export]
    use crate::scan::{Scan, export_version, scan_version};
    #[pymodule_export]
    use crate::sets::{decode_ids, encode_ids};
    #[pymodule_export]
    use crate::values::Values;
}
