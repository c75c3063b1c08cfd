//! Finds replies in the bytes of a server: the client's half of the protocol, version 2.
//!
//! Nothing is copied or nested: a reply is a flat list of items, which are ranges in the caller's buffer; an array is
//! its length followed by its elements. So neither depth nor breadth costs more than one item each. The invariant: any
//! way of cutting a stream into pieces yields the same replies, and each complete item is parsed once.

use std::ops::Range;

use memchr::memchr;
use thiserror::Error;

use crate::Limits;
use crate::decimal::{Count, parse_integer, read_count};

/// The capacity that is kept for the next reply; larger allocations are freed.
const ITEMS_KEPT_MAX: usize = 4096;

/// One item of a reply. Ranges are relative to the start of the reply in the parsed buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyItem {
    /// A status, such as `OK`.
    Status(Place),
    /// An error: its first word is its code.
    Error(Place),
    /// An integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Place),
    /// No value, or no array.
    Null,
    /// An array of this many elements: the items that follow, each with its own elements.
    Array(u32),
}

/// The range of an item. A reply is never longer than [`u32::MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    start: u32,
    end: u32,
}

impl Place {
    /// The range in bytes.
    #[inline]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A server with TLS answers a request without it by an alert, which begins with this byte.
const TLS_ALERT: u8 = 0x15;

fn unknown_kind(got: u8) -> String {
    match got {
        TLS_ALERT => "it speaks TLS, and was asked without".to_owned(),
        _ => format!(
            "a reply begins with '{}', which is not a valid type",
            got.escape_ascii()
        ),
    }
}

/// An invalid reply. The start of the next reply is unknown: close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// A byte that does not begin any kind of reply in version 2.
    #[error("{}", unknown_kind(*got))]
    UnknownKind {
        /// The byte.
        got: u8,
    },
    /// A length or an integer that is not a number, or is over the limit.
    #[error("a reply has an invalid number")]
    InvalidNumber,
    /// A string longer or shorter than its length says.
    #[error("a string in a reply does not end where its length says")]
    UnterminatedBulk,
    /// A status, error or length without an end within the limit.
    #[error("a reply has a line that is too long")]
    LineTooLong,
    /// The whole reply is over the limit, in bytes or in items.
    #[error("a reply is too big")]
    TooBig,
}

/// The items of the last complete reply. Their memory is reused for the next one.
///
/// Each connection has one. It also keeps the progress of an incomplete reply.
#[derive(Debug, Clone, Default)]
pub struct ReplyItems {
    items: Vec<ReplyItem>,
    /// The offset of the next item.
    position: usize,
    /// The number of missing items; 0 between replies.
    owed: usize,
}

impl ReplyItems {
    /// No items, nothing allocated.
    pub const fn new() -> Self {
        Self {
            items: Vec::new(),
            position: 0,
            owed: 0,
        }
    }

    /// The items, in the order of the stream.
    #[inline]
    pub fn as_slice(&self) -> &[ReplyItem] {
        &self.items
    }

    /// Discards the reply, and the progress of an incomplete one.
    pub fn clear(&mut self) {
        self.items.clear();
        self.items.shrink_to(ITEMS_KEPT_MAX);
        (self.position, self.owed) = (0, 0);
    }
}

/// The result of parsing the start of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyParse {
    /// A reply, whose items are now available. The next reply begins `consumed` bytes later.
    Complete {
        /// Length of the reply in bytes.
        consumed: usize,
    },
    /// The start of a reply. Parsing again before the buffer has `needed` bytes is harmless but useless.
    Incomplete {
        /// The buffer length needed for the next step, counted from the start of the reply.
        needed: usize,
    },
}

/// Finds the next reply at the start of `buffer`, which may contain a part of a reply or many replies.
///
/// After [`ReplyParse::Incomplete`], call again with the same bytes followed by more: `items` keeps the progress. The
/// limits on bulks, arguments (here: items), lines and the total apply.
///
/// # Errors
/// A [`ReplyError`] if no reply can be found from here on.
pub fn parse_reply(buffer: &[u8], limits: &Limits, items: &mut ReplyItems) -> Result<ReplyParse, ReplyError> {
    if items.owed == 0 {
        items.clear();
        items.owed = 1;
    }
    while items.owed > 0 {
        match read_item(buffer, limits, items.position) {
            Ok(Step::Item { item, next }) => {
                items.owed -= 1;
                if let ReplyItem::Array(length) = item {
                    items.owed += length as usize;
                }
                if items.items.len() + items.owed > limits.arguments_max {
                    items.clear();
                    return Err(ReplyError::TooBig);
                }
                items.items.push(item);
                items.position = next;
            }
            Ok(Step::More { needed }) => return Ok(ReplyParse::Incomplete { needed }),
            Err(error) => {
                items.clear();
                return Err(error);
            }
        }
    }
    Ok(ReplyParse::Complete {
        consumed: items.position,
    })
}

enum Step {
    Item { item: ReplyItem, next: usize },
    More { needed: usize },
}

/// Reads the item at `position`.
#[inline]
fn read_item(buffer: &[u8], limits: &Limits, position: usize) -> Result<Step, ReplyError> {
    let Some((&kind, rest)) = buffer.get(position..).and_then(<[u8]>::split_first) else {
        return Ok(Step::More { needed: position + 1 });
    };
    let start = position + 1;
    match kind {
        b'$' => read_bulk(buffer, limits, start),
        b'*' => match length(rest)? {
            Some((None, bytes)) => whole(ReplyItem::Null, start + bytes, limits),
            Some((Some(length), bytes)) if length <= limits.arguments_max => {
                whole(ReplyItem::Array(length as u32), start + bytes, limits)
            }
            Some(_) => Err(ReplyError::TooBig),
            None => Ok(more(buffer)),
        },
        b':' | b'+' | b'-' => {
            let window = &rest[..rest.len().min(limits.inline_bytes_max.saturating_add(2))];
            let Some(end) = memchr(b'\n', window) else {
                return match window.len() > limits.inline_bytes_max {
                    true => Err(ReplyError::LineTooLong),
                    false => Ok(more(buffer)),
                };
            };
            let line = window[..end].strip_suffix(b"\r").ok_or(ReplyError::UnterminatedBulk)?;
            let place = Place {
                start: start as u32,
                end: (start + line.len()) as u32,
            };
            let item = match kind {
                b'+' => ReplyItem::Status(place),
                b'-' => ReplyItem::Error(place),
                _ => ReplyItem::Integer(parse_integer(line).ok_or(ReplyError::InvalidNumber)?),
            };
            whole(item, start + end + 1, limits)
        }
        got => Err(ReplyError::UnknownKind { got }),
    }
}

fn read_bulk(buffer: &[u8], limits: &Limits, position: usize) -> Result<Step, ReplyError> {
    let (length, bytes) = match length(&buffer[position..])? {
        Some((Some(length), bytes)) => (length, bytes),
        Some((None, bytes)) => return whole(ReplyItem::Null, position + bytes, limits),
        None => return Ok(more(buffer)),
    };
    if length > limits.bulk_bytes_max {
        return Err(ReplyError::TooBig);
    }
    let start = position + bytes;
    let end = start.saturating_add(length);
    let next = end.saturating_add(2);
    if next > limits.request_bytes() {
        return Err(ReplyError::TooBig);
    }
    match buffer.get(end..next) {
        Some(b"\r\n") => {
            let place = Place {
                start: start as u32,
                end: end as u32,
            };
            whole(ReplyItem::Bulk(place), next, limits)
        }
        Some(_) => Err(ReplyError::UnterminatedBulk),
        None => Ok(Step::More { needed: next }),
    }
}

/// The length, and the bytes of its line; the length is `None` for -1. `None` if the line has not ended yet.
#[inline]
fn length(line: &[u8]) -> Result<Option<(Option<usize>, usize)>, ReplyError> {
    match read_count(line) {
        Count::Value { value: -1, bytes } => Ok(Some((None, bytes))),
        Count::Value { value, bytes } => match usize::try_from(value) {
            Ok(length) => Ok(Some((Some(length), bytes))),
            Err(_) => Err(ReplyError::InvalidNumber),
        },
        Count::Partial => Ok(None),
        Count::Invalid => Err(ReplyError::InvalidNumber),
        Count::TooLong => Err(ReplyError::LineTooLong),
    }
}

#[inline]
fn whole(item: ReplyItem, next: usize, limits: &Limits) -> Result<Step, ReplyError> {
    match next <= limits.request_bytes() {
        true => Ok(Step::Item { item, next }),
        false => Err(ReplyError::TooBig),
    }
}

fn more(buffer: &[u8]) -> Step {
    Step::More {
        needed: buffer.len() + 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Protocol, Reply};

    fn parsed(bytes: &[u8]) -> (Result<ReplyParse, ReplyError>, Vec<ReplyItem>) {
        let mut items = ReplyItems::new();
        let parse = parse_reply(bytes, &Limits::default(), &mut items);
        (parse, items.as_slice().to_vec())
    }

    #[test]
    fn every_kind_of_reply_is_found() {
        let bytes = b"*6\r\n$2\r\nab\r\n$-1\r\n:-7\r\n-NOTHERE x\r\n*-1\r\n*1\r\n+OK\r\n+next\r\n";
        let (parse, items) = parsed(bytes);
        assert_eq!(
            parse,
            Ok(ReplyParse::Complete {
                consumed: bytes.len() - 7
            })
        );
        let text = |place: Place| std::str::from_utf8(&bytes[place.range()]).unwrap();
        let [
            ReplyItem::Array(6),
            ReplyItem::Bulk(bulk),
            ReplyItem::Null,
            ReplyItem::Integer(-7),
            ReplyItem::Error(error),
            ReplyItem::Null,
            ReplyItem::Array(1),
            ReplyItem::Status(status),
        ] = items[..]
        else {
            panic!("{items:?}")
        };
        assert_eq!((text(bulk), text(error), text(status)), ("ab", "NOTHERE x", "OK"));
    }

    #[test]
    fn an_invalid_reply_is_refused() {
        for (bytes, error) in [
            (&b"!x"[..], ReplyError::UnknownKind { got: b'!' }),
            (b"GET", ReplyError::UnknownKind { got: b'G' }),
            (b"$x\r\n", ReplyError::InvalidNumber),
            (b"$-2\r\n", ReplyError::InvalidNumber),
            (b":1x\r\n", ReplyError::InvalidNumber),
            (b"$1\r\nabc", ReplyError::UnterminatedBulk),
            (b"+OK\n", ReplyError::UnterminatedBulk),
            (b"*99999999\r\n", ReplyError::TooBig),
            (b"$999999999999\r\n", ReplyError::TooBig),
        ] {
            assert_eq!(parsed(bytes).0, Err(error), "{}", bytes.escape_ascii());
        }
        assert_eq!(parsed(&[b'+'; 70_000]).0, Err(ReplyError::LineTooLong));
        let nested = b"*1000000\r\n".repeat(3);
        assert_eq!(parsed(&nested).0, Err(ReplyError::TooBig));
    }

    proptest! {
        #[test]
        fn a_stream_cut_anywhere_yields_the_same_replies(
            values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            piece in 1usize..9,
        ) {
            let mut bytes = Vec::new();
            let mut reply = Reply::new(&mut bytes, Protocol::Resp2);
            reply.array(values.len());
            for value in &values {
                match value {
                    Some(value) => reply.bulk(value),
                    None => reply.null(),
                }
            }
            let (limits, mut items, mut have) = (Limits::default(), ReplyItems::new(), 0);
            let consumed = loop {
                match parse_reply(&bytes[..have], &limits, &mut items).unwrap() {
                    ReplyParse::Complete { consumed } => break consumed,
                    ReplyParse::Incomplete { needed } => {
                        prop_assert!(needed > have && needed <= bytes.len());
                        have = (have + piece).min(bytes.len());
                    }
                    }
            };
            prop_assert_eq!(consumed, bytes.len());
            let found: Vec<_> = items.as_slice()[1..].iter().map(|item| match item {
                ReplyItem::Bulk(place) => Some(bytes[place.range()].to_vec()),
                _ => None,
            }).collect();
            prop_assert_eq!(found, values);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parsed(&bytes);
        }
    }
}
