//! The wire format of requests to replicas and replies: arguments of RESP commands, and RESP values.
//!
//! Both are written and parsed here, so that no other code knows the layout. Numbers among the arguments are decimal,
//! hashes and digests are big endian.

mod reply;
mod request;
mod splices;

pub use request::ReplicaRequestError;
pub use splices::Splices;
