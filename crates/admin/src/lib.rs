//! Requests to a cluster as people and jobs make them: to the control port of a process, and to its RESP port.
//!
//! - [`Endpoint`]: the addresses of a process, the credentials, and TLS;
//! - [`Client`]: the client of a control port;
//! - [`connect`]: a connection to a RESP port;
//! - [`AdminError`]: the reasons that a request fails, with their codes.
//!
//! It knows no commands and no jobs: the paths of requests and the meaning of their answers are the caller's. Look-ups of
//! applications go through the crate `client`, which knows the topology.

mod client;
mod endpoint;
mod error;
mod named_tls;
mod port_protocol;
mod resp;

pub use client::Client;
pub use endpoint::Endpoint;
pub use error::AdminError;
pub use resp::{Connection, RESP_DEFAULT, connect, refused};
