//! The messages between nodes and clients of a cluster, over the Redis protocol or within one process.
//!
//! - [`WireKey`]: a key with the name of its store, and its slot;
//! - [`Envelope`]: how a request has to be carried out: versioned, and extensible;
//! - [`TraceContext`]: the trace that a sampled request belongs to;
//! - [`replica`]: requests to a replica of a versioned store, and its replies;
//! - [`RequestKey`]: requests over HTTP, signed with the token of the cluster;
//! - [`trusting`]: TLS to nodes whose certificates are in a file;
//! - [`proof`]: the proof of each end of a connection that it knows the secret of the cluster.
//!
//! Each message is written and parsed in the same module, so that no other code knows its layout. No sockets.

#![deny(unsafe_code)]

mod envelope;
mod key;
pub mod proof;
pub mod replica;
mod session;
mod signature;
mod trace;
mod trust;

pub use envelope::{Envelope, EnvelopeError};
pub use key::{InvalidKey, WireKey};
pub use session::SessionKey;
pub use signature::{RequestKey, SIGNED_MS_MAX, SeenSignatures, Signature, SignedRequest, TIME_HEADER, Unacceptable};
pub use trace::{InvalidTraceparent, TraceContext};
pub use trust::{TrustError, in_words, refused_certificate, trusting};

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall-clock time, in milliseconds since 1970, as messages carry it; 0 before that.
pub fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
