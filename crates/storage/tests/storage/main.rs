//! Checks the guarantees of a location on each kind of storage: a local directory, and real servers of S3 and HDFS.

mod conformance;
mod faults;
mod local;
mod place;
