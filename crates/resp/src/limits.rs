//! Limits for one request.
//!
//! The parser allocates nothing for data that a client only announces: a limit determines how much the caller
//! buffers. Each exceeded limit is a separate [`ProtocolError`].

use crate::ProtocolError;
use crate::skip::SKIPPED_BYTES_MAX;

/// The maximum number of arguments before a client has authenticated, as in Redis.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// The longest argument, in bytes, before a client has authenticated, as in Redis.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;

/// Bounds on one request. [`Limits::default`] has those of Redis, except for the total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest inline request, in bytes, without the line end.
    pub inline_bytes_max: usize,
    /// Longest argument, in bytes. In requests that exchange records between nodes, an argument may be as long as the
    /// request: a record has all concurrent values of its key, and metadata.
    pub bulk_bytes_max: usize,
    /// Maximum number of arguments in one request, including the command's name.
    pub arguments_max: usize,
    /// Longest request in bytes, including framing. Never more than [`u32::MAX`] is accepted.
    pub request_bytes_max: usize,
    /// Whether the client has authenticated, or need not. While this is false, the two `UNAUTHENTICATED_…` bounds apply
    /// as well, so that an unauthenticated client cannot make the server buffer much.
    pub authenticated: bool,
}

impl Limits {
    /// The same limits for a client that has not authenticated yet.
    pub const fn unauthenticated(self) -> Self {
        Self {
            authenticated: false,
            ..self
        }
    }

    /// The longest request, in bytes, that 32-bit ranges can describe.
    #[inline]
    pub(crate) fn request_bytes(&self) -> usize {
        self.request_bytes_max.min(u32::MAX as usize)
    }

    /// The same limits for a request with records.
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

    /// Whether an argument of this length is over the limit, but can be skipped without closing the connection.
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
