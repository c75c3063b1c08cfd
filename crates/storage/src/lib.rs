//! Where versions are kept: a URL becomes a [`Location`], a directory to write files into and to
//! fetch them from.
//!
//! It is not a file system: it knows whole files, written once from start to end, and directories
//! that are deleted as a whole. A file is durable once [`FileWriter::finish`] returned, and a file
//! of [`Location::write_atomically`] is there either whole or not at all.
//!
//! The two halves differ on purpose. **Writing** is synchronous: builders are plain threads, and
//! for a local directory writing through `std::fs` measured faster than the multipart upload of an
//! object store. **Reading** is asynchronous and goes over [`object_store`], because a fetch is one
//! of many things that a node does at a time. This build supports local paths. S3 joins through
//! `object_store`'s `aws` feature and HDFS through the crate `hdfs-native-object-store`, which
//! implements the same trait; both then fill in what [`Location::from_str`] refuses today.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::io::Write;
//!
//! let directory = tempfile::tempdir().unwrap();
//! let location = fondaco_storage::Location::local(directory.path().join("v1"));
//! location.create_directory()?;
//! let mut file = location.create_file("greeting")?;
//! file.write_all(b"good morning").unwrap();
//! file.finish()?;
//!
//! let mut reader = location.read_from("greeting", 5).await?;
//! assert_eq!(reader.next().await?.as_deref(), Some(&b"morning"[..]));
//! assert_eq!(reader.next().await?, None);
//! # Ok::<(), fondaco_storage::StorageError>(()) }).unwrap();
//! ```
//!
//! [`Location::from_str`]: std::str::FromStr::from_str

mod error;
mod location;
mod reader;
mod writer;

pub use error::StorageError;
pub use location::{FileInfo, Location};
pub use reader::FileReader;
pub use writer::FileWriter;
