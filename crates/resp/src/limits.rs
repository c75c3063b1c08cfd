//! How much one request may ask for.
//!
//! The parser allocates nothing for what a client only announces: a limit decides how long the caller
//! goes on buffering. Every limit that is passed is a [`ProtocolError`] of its own.

use crate::ProtocolError;
use crate::skip::SKIPPED_BYTES_MAX;

/// The most arguments a client may send before it has authenticated, as in Redis.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// The longest argument, in bytes, before a client has authenticated, as in Redis.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Bounds on one request. [`Limits::default`] has those of Redis, save for the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest inline request, in bytes, line end not counted.
    pub inline_bytes_max: usize,
    /// Longest argument, in bytes. Those of requests by which nodes tell each other records may be as long as the
    /// request: a record has all concurrent values of its key, and what stands around them.
    pub bulk_bytes_max: usize,
    /// Most arguments in one request, the command's name included.
    pub arguments_max: usize,
    /// Longest request in bytes, framing included. Never more than [`u32::MAX`] is accepted.
    pub request_bytes_max: usize,
    /// Whether the client has authenticated, or need not. While this is false the two
    /// `UNAUTHENTICATED_…` bounds hold as well, so that a stranger cannot make the server buffer much.
    pub authenticated: bool,
}

impl Limits {
    /// The same limits for a client that has yet to authenticate.
    pub const fn unauthenticated(self) -> Self {
        Self {
            authenticated: false,
            ..self
        }
    }

    /// The longest request, in bytes, that places of 32 bits can describe.
    #[inline]
    pub(crate) fn request_bytes(&self) -> usize {
        self.request_bytes_max.min(u32::MAX as usize)
    }

    /// The same limits for a request that brings records.
    pub(crate) const fn of_records(self) -> Self {
        Self {
            bulk_bytes_max: self.request_bytes_max,
            ..self
        }
    }

    #[inline]
    pub(crate) fn check_arguments(&self, count: usize) -> Result<(), ProtocolError> {
        if count > self.arguments_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        Ok(())
    }

    /// Whether an argument of this length is over the limit, and not so long that the connection has to end.
    #[inline]
    pub(crate) fn is_to_be_skipped(&self, length: i64) -> bool {
        let length = u64::try_from(length).unwrap_or(0);
        self.authenticated && length > self.bulk_bytes_max as u64 && length <= SKIPPED_BYTES_MAX
    }

    #[inline]
    pub(crate) fn check_bulk(&self, length: i64) -> Result<usize, ProtocolError> {
        match usize::try_from(length) {
            Ok(length) if length <= self.bulk_bytes_max => {
                if length > UNAUTHENTICATED_BULK_BYTES_MAX && !self.authenticated {
                    return Err(ProtocolError::UnauthenticatedBulkLength);
                }
                Ok(length)
            }
            _ => Err(ProtocolError::InvalidBulkLength),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            inline_bytes_max: 64 * 1024,
            bulk_bytes_max: 512 * 1024 * 1024,
            arguments_max: 1024 * 1024,
            request_bytes_max: 1024 * 1024 * 1024,
            authenticated: true,
        }
    }
}
