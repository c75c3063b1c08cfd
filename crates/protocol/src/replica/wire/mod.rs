//! Requests and replies of replicas as they travel: arguments of RESP commands, and RESP values.
//!
//! Both directions of both stand side by side here, so that nothing else knows the layout. Numbers among the
//! arguments are decimal, hashes and digests are big endian.

mod reply;
mod request;

pub use request::ReplicaRequestError;
