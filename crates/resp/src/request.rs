//! Finds requests in the bytes of a client.
//!
//! Nothing is copied: arguments are ranges in the caller's buffer. The caller owns the connection: it reads, buffers,
//! and drops the consumed bytes. The invariant: any way of cutting a stream into pieces yields the same requests, and
//! each byte of an argument list is examined once.

use crate::arguments::Progress;
use crate::command::{self, CommandId};
use crate::decimal::{Count, read_count};
use crate::skip::Skip;
use crate::{Arguments, Limits, ProtocolError, inline};
use memchr::memchr;

/// The result of parsing the start of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parse {
    /// A request, whose arguments are now available. The next request begins `consumed` bytes later.
    Complete {
        /// Length of the request in bytes.
        consumed: usize,
    },
    /// A blank line or an empty array, which has no reply. The caller must skip it.
    Empty {
        /// The number of bytes to skip.
        consumed: usize,
    },
    /// The start of a request. Parsing again before the buffer has `needed` bytes is harmless but useless.
    Incomplete {
        /// The buffer length needed for the next step, counted from the start of the request.
        needed: usize,
    },
    /// A request with an argument over the limit, too long to be buffered.
    TooLong {
        /// The length of its beginning, in bytes, up to that argument.
        consumed: usize,
        /// The rest, which the caller must skip.
        skip: Skip,
    },
}

/// Finds the next request at the start of `buffer`, which may contain a part of a request or many requests.
///
/// After [`Parse::Incomplete`], call again with the same bytes followed by more: `arguments` keeps the progress. If the
/// bytes are not the same, call [`Arguments::clear`] first.
///
/// # Errors
///
/// A [`ProtocolError`] if no request can be found from here on; the connection must be closed.
#[inline]
pub fn parse_request(buffer: &[u8], limits: &Limits, arguments: &mut Arguments) -> Result<Parse, ProtocolError> {
    let parsed = match arguments.progress {
        Progress::Fresh => parse_fresh(buffer, limits, arguments),
        Progress::Inline { searched } => parse_inline(buffer, limits, arguments, searched),
        Progress::Multibulk { remaining, position } => parse_bulks(buffer, limits, arguments, remaining, position),
    };
    if parsed.is_err() {
        arguments.clear();
    }
    parsed
}

#[inline]
fn parse_fresh(buffer: &[u8], limits: &Limits, arguments: &mut Arguments) -> Result<Parse, ProtocolError> {
    arguments.clear();
    match buffer {
        [] => Ok(Parse::Incomplete { needed: 1 }),
        [b'*', line @ ..] => match read_count(line) {
            Count::Value { value, bytes } => {
                let consumed = 1 + bytes;
                let remaining = match usize::try_from(value) {
                    Ok(0) | Err(_) => return Ok(Parse::Empty { consumed }),
                    Ok(remaining) => remaining,
                };
                limits.check_arguments(remaining)?;
                parse_bulks(buffer, limits, arguments, remaining, consumed)
            }
            Count::Partial => Ok(Parse::Incomplete {
                needed: buffer.len() + 1,
            }),
            Count::Invalid => Err(ProtocolError::InvalidMultibulkLength),
            Count::TooLong => Err(ProtocolError::MultibulkCountTooBig),
        },
        _ => parse_inline(buffer, limits, arguments, 0),
    }
}

/// Reads arguments from `position` on, until the request or the buffer ends.
#[inline]
fn parse_bulks(
    buffer: &[u8],
    limits: &Limits,
    arguments: &mut Arguments,
    mut remaining: usize,
    mut position: usize,
) -> Result<Parse, ProtocolError> {
    while remaining > 0 {
        let bulk = match read_bulk(buffer, limits, position) {
            Ok(Bulk::Long { .. }) | Err(ProtocolError::InvalidBulkLength) if brings_records(arguments, buffer) => {
                read_bulk(buffer, &limits.of_records(), position)?
            }
            bulk => bulk?,
        };
        let needed = match bulk {
            Bulk::Whole { start, end } => {
                arguments.push_place(start, end);
                position = end + 2;
                remaining -= 1;
                continue;
            }
            Bulk::Part { needed } => needed,
            Bulk::Long { start, length } => {
                arguments.clear();
                return Ok(Parse::TooLong {
                    consumed: start,
                    skip: Skip::new(length, remaining - 1),
                });
            }
        };
        if needed > limits.request_bytes() {
            return Err(ProtocolError::RequestTooBig);
        }
        arguments.progress = Progress::Multibulk { remaining, position };
        return Ok(Parse::Incomplete { needed });
    }
    arguments.progress = Progress::Fresh;
    Ok(Parse::Complete { consumed: position })
}

/// Whether the command exchanges records between nodes.
#[cold]
fn brings_records(arguments: &Arguments, buffer: &[u8]) -> bool {
    use CommandId::{FondacoRHint, FondacoRMerge, FondacoRPut, FondacoRSync};
    let command = arguments.get(0, buffer).and_then(command::find);
    command.is_some_and(|command| {
        let known = [FondacoRPut, FondacoRMerge, FondacoRHint, FondacoRSync];
        known.contains(&command.id)
    })
}

enum Bulk {
    Whole {
        start: usize,
        end: usize,
    },
    Part {
        needed: usize,
    },
    /// It is over the limit, but can be skipped.
    Long {
        start: usize,
        length: u64,
    },
}

/// Reads one argument at `position`.
#[inline]
fn read_bulk(buffer: &[u8], limits: &Limits, position: usize) -> Result<Bulk, ProtocolError> {
    let more = Bulk::Part {
        needed: buffer.len().max(position) + 1,
    };
    let line = match buffer.get(position..) {
        Some([b'$', line @ ..]) => line,
        Some(&[got, ..]) => return Err(ProtocolError::ExpectedBulk { got }),
        _ => return Ok(more),
    };
    let (length, line_bytes) = match read_count(line) {
        Count::Value { value, bytes } if limits.is_to_be_skipped(value) => {
            return Ok(Bulk::Long {
                start: position + 1 + bytes,
                length: value as u64,
            });
        }
        Count::Value { value, bytes } => (limits.check_bulk(value)?, bytes),
        Count::Partial => return Ok(more),
        Count::Invalid => return Err(ProtocolError::InvalidBulkLength),
        Count::TooLong => return Err(ProtocolError::BulkCountTooBig),
    };
    let start = position + 1 + line_bytes;
    let end = start.saturating_add(length);
    let needed = end.saturating_add(2);
    if needed > limits.request_bytes() {
        return Err(ProtocolError::RequestTooBig);
    }
    match buffer.get(end..needed) {
        Some(b"\r\n") => Ok(Bulk::Whole { start, end }),
        Some(_) => Err(ProtocolError::UnterminatedBulk),
        None => Ok(Bulk::Part { needed }),
    }
}

/// Reads a line of words. The first `searched` bytes contain no line end.
#[cold]
fn parse_inline(
    buffer: &[u8],
    limits: &Limits,
    arguments: &mut Arguments,
    searched: usize,
) -> Result<Parse, ProtocolError> {
    // The longest line, plus a carriage return and a line feed.
    let window_bytes = limits.inline_bytes_max.min(limits.request_bytes()).saturating_add(2);
    let window = &buffer[..buffer.len().min(window_bytes)];
    let found = window.get(searched..).and_then(|rest| memchr(b'\n', rest));
    let Some(found) = found else {
        if window.len() >= window_bytes {
            return Err(ProtocolError::InlineTooBig);
        }
        arguments.progress = Progress::Inline { searched: window.len() };
        return Ok(Parse::Incomplete {
            needed: buffer.len() + 1,
        });
    };
    let end = searched + found;
    let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
    if line.len() > limits.inline_bytes_max {
        return Err(ProtocolError::InlineTooBig);
    }
    inline::split(line, arguments)?;
    if arguments.len() > limits.arguments_max {
        return Err(ProtocolError::InlineTooBig);
    }
    arguments.progress = Progress::Fresh;
    let consumed = end + 1;
    Ok(if arguments.is_empty() {
        Parse::Empty { consumed }
    } else {
        Parse::Complete { consumed }
    })
}
