//! Storage for versions: a URL becomes a [`Location`], a directory of files on a local disk, in S3, or in HDFS.
//!
//! A location is not a file system: it has whole files, written once from start to end, and directories that are
//! deleted as a whole. A file is durable after [`FileWriter::finish`] has returned, and does not exist before;
//! [`Location::write_atomically`] writes a file either completely or not at all.
//!
//! All operations wait for disks and networks, and are meant for threads that may block: builders and fetches are plain
//! threads. The clients of S3 and HDFS are asynchronous inside, on one small runtime that all of them share; never call
//! this crate from a task of another runtime. Reads are in bounded pieces, each a separate request, so that a reader
//! that is throttled for hours holds no connection open.
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
