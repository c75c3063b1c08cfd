//! Violations of the Redis protocol.
//!
//! The wording is exactly that of Redis, since client libraries and their tests match on it. After any of these errors
//! the start of the next request is unknown: reply `ERR` and the message, then close the connection.

use thiserror::Error;

/// A request that violates the protocol or a limit. Its text is the reply of Redis, after `ERR `.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The number of arguments is not a number, or is over the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// More arguments than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// The length of an argument is not a number, is negative, or is over the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// A longer argument than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// An argument that does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", .got.escape_ascii())]
    ExpectedBulk {
        /// The byte found instead of `$`.
        got: u8,
    },
    /// An argument is longer or shorter than its length says. Redis skips two bytes unchecked here; but in a stream
    /// that is out of step, a value may look like a command, so the stream ends instead.
    #[error("Protocol error: expected CRLF after bulk")]
    UnterminatedBulk,
    /// A quote that is not closed, or closed in the middle of a word, in an inline request.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// An inline request over the limit.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// No line end where the number of arguments should have ended.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkCountTooBig,
    /// No line end where the length of an argument should have ended.
    #[error("Protocol error: too big bulk count string")]
    BulkCountTooBig,
    /// The whole request is over the limit.
    #[error("Protocol error: too big request")]
    RequestTooBig,
}
