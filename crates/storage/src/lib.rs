//! Where versions are kept: a URL becomes a [`Location`], a directory to write files into and to
//! fetch them from, on a local disk, in S3, or in HDFS.
//!
//! It is not a file system: it knows whole files, written once from start to end, and directories
//! that are deleted as a whole. A file is durable once [`FileWriter::finish`] returned, and is not there
//! before; a file of [`Location::write_atomically`] is there either whole or not at all.
//!
//! All of it waits for disks and networks, and is meant for threads that may: builders and fetches are
//! plain threads. The clients of S3 and HDFS are asynchronous inside, on one small runtime that all
//! share; never call this from a task of another one. Reading is in bounded pieces, each a request of
//! its own, so that a reader that is slowed down for hours holds no connection open.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let directory = tempfile::tempdir().unwrap();
//! let location = fondaco_storage::Location::local(directory.path().join("v1"));
//! location.create_directory()?;
//! let mut file = location.create_file("greeting")?;
//! file.write_all(b"good morning").unwrap();
//! file.finish()?;
//!
//! let mut text = String::new();
//! location.open("greeting", 5)?.read_to_string(&mut text).unwrap();
//! assert_eq!(text, "morning");
//! # Ok::<(), fondaco_storage::StorageError>(())
//! ```

mod error;
mod local;
mod location;
mod options;
mod reader;
mod remote;
mod runtime;
mod upload;
mod writer;

pub use error::StorageError;
pub use location::{FileInfo, Location};
pub use options::{HdfsOptions, S3Options, Secret, StorageOptions};
pub use reader::FileReader;
pub use writer::FileWriter;
