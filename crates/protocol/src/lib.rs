//! What nodes and clients of one cluster say to each other, over the Redis protocol or within one process.
//!
//! - [`WireKey`]: a key with the name of its store, and the slot that follows;
//! - [`Envelope`]: how a request is to be carried out: versioned, and extensible;
//! - [`replica`]: what a replica of a versioned store is asked, and what it answers;
//! - [`RequestKey`]: requests over HTTP, signed with the token of the cluster;
//! - [`trusting`]: TLS to nodes whose certificates are in a file;
//! - [`proof`]: how each end of a connection shows that it knows the secret of the cluster.
//!
//! Both directions of each message stand side by side, so that nothing else knows the layout. No socket.

#![deny(unsafe_code)]

mod envelope;
mod key;
pub mod proof;
pub mod replica;
mod signature;
mod trust;

pub use envelope::{Envelope, EnvelopeError};
pub use key::{InvalidKey, WireKey};
pub use signature::{RequestKey, SIGNED_MS_MAX, SeenSignatures, Signature, SignedRequest, TIME_HEADER, Unacceptable};
pub use trust::{TrustError, trusting};

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall-clock time, in milliseconds since 1970, as messages carry it; 0 before that.
pub fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
