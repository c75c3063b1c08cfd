//! Skips the rest of a request with an argument over the limit, so that the client gets an error and can continue.

use crate::ProtocolError;
use crate::decimal::{Count, read_count};

/// The longest argument that can be skipped, in bytes: longer ones violate the protocol, as in Redis.
pub(crate) const SKIPPED_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The rest of a request that is being skipped. Nothing of it is buffered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// The length of the argument over the limit, in bytes.
    pub length: u64,
    /// The number of arguments after the one being skipped.
    arguments: usize,
    /// The remaining bytes of that argument, without its line end.
    bytes: u64,
    awaits_end: bool,
}

impl Skip {
    /// Begins after the line with the length of the argument; `arguments` more follow it.
    pub(crate) fn new(length: u64, arguments: usize) -> Self {
        Self {
            length,
            arguments,
            bytes: length,
            awaits_end: true,
        }
    }

    /// Whether the whole request is skipped.
    pub fn is_done(&self) -> bool {
        self.bytes == 0 && !self.awaits_end && self.arguments == 0
    }

    /// Skips as much of a buffer as possible, and returns the number of bytes. Unless [it is done](Self::is_done), pass
    /// the remaining bytes again, followed by more.
    ///
    /// # Errors
    ///
    /// A [`ProtocolError`] if the next bytes are not an argument.
    pub fn take(&mut self, buffer: &[u8]) -> Result<usize, ProtocolError> {
        let mut at = 0;
        loop {
            let rest = &buffer[at..];
            if self.bytes > 0 {
                let skipped = self.bytes.min(rest.len() as u64);
                self.bytes -= skipped;
                at += skipped as usize;
                if self.bytes > 0 {
                    return Ok(at);
                }
            } else if self.awaits_end {
                match rest.get(..2) {
                    Some(b"\r\n") => at += 2,
                    Some(_) => return Err(ProtocolError::UnterminatedBulk),
                    None => return Ok(at),
                }
                self.awaits_end = false;
            } else if self.arguments == 0 {
                return Ok(at);
            } else {
                let line = match rest {
                    [b'$', line @ ..] => line,
                    &[got, ..] => return Err(ProtocolError::ExpectedBulk { got }),
                    [] => return Ok(at),
                };
                let (length, bytes) = match read_count(line) {
                    Count::Value { value, bytes } => (u64::try_from(value), bytes),
                    Count::Partial => return Ok(at),
                    Count::Invalid => return Err(ProtocolError::InvalidBulkLength),
                    Count::TooLong => return Err(ProtocolError::BulkCountTooBig),
                };
                self.bytes = match length {
                    Ok(length) if length <= SKIPPED_BYTES_MAX => length,
                    _ => return Err(ProtocolError::InvalidBulkLength),
                };
                self.awaits_end = true;
                self.arguments -= 1;
                at += 1 + bytes;
            }
        }
    }
}
