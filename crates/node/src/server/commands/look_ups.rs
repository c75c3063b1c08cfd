//! Look-ups: commands that say something about the value of each key, and change nothing. They ask both kinds of stores.

use std::ops::Range;

use bytes::Bytes;
use fondaco_resp::command::CommandId;
use fondaco_resp::{Arguments, Reply, parse_integer};

use super::expiry::Unit;
use super::operation::{Answer, Asked, Combined, Operation, Request};
use super::{NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use crate::forward::Steered;
use crate::single_value::Current;

/// The question of a look-up about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum LookUp {
    /// `GET`, `MGET`, `FONDACO.MGET`
    Value,
    /// `EXISTS`, `TOUCH`
    Exists,
    /// `STRLEN`
    Length,
    /// `TYPE`
    Type,
    /// `GETRANGE`, `SUBSTR`: the bytes from the first to the last; negative numbers count from the end.
    Range(i64, i64),
    /// `TTL`, `PTTL`: the time left.
    TimeLeft(Unit),
    /// `EXPIRETIME`, `PEXPIRETIME`: when it expires, since 1970.
    ExpiryTime(Unit),
    /// `OBJECT ENCODING`: in which Redis would keep the value.
    Encoding,
    /// `OBJECT REFCOUNT`
    References,
    /// `MEMORY USAGE`, of a key with this many bytes.
    Memory { key_bytes: usize },
}

/// A request that is a look-up.
#[derive(Debug, Clone)]
pub(in crate::server) struct LookUps {
    pub(in crate::server) look_up: LookUp,
    /// The arguments that are its keys.
    pub(in crate::server) keys: Range<usize>,
    pub(in crate::server) reply: Combined,
    /// The options of `FONDACO.MGET` for the nodes to ask.
    pub(in crate::server) steered: Option<Steered>,
    pub(in crate::server) limit: Limit,
}

/// How long a request may take, in milliseconds, if that is limited: `DEADLINE ms`; and with `PARTIAL`, whether the keys that
/// have no answer then are listed behind the values, in place of an error for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::server) struct Limit {
    pub(in crate::server) deadline_ms: Option<u64>,
    pub(in crate::server) lists_late: bool,
}

/// The longest that a client may say it waits, in milliseconds: an hour.
const DEADLINE_MS_MAX: u64 = 3_600_000;

/// Ends a reply with the late keys: the reason for the first, then the positions of all; null if no key is late.
pub(in crate::server) fn write_late(reason: Option<&str>, places: &[usize], reply: &mut Reply<'_>) {
    match reason {
        Some(reason) if !places.is_empty() => {
            reply.array(places.len() + 1);
            reply.bulk(reason.as_bytes());
            places.iter().for_each(|&at| reply.integer(at as i64));
        }
        _ => reply.null(),
    }
}

impl Limit {
    /// Reads the option from the arguments, at a place; the place behind it.
    ///
    /// # Errors
    /// The error to answer with: no number of milliseconds.
    pub(super) fn parse<'a>(argument: impl Fn(usize) -> Option<&'a [u8]>, at: usize) -> Result<(Self, usize), Refusal> {
        let is = |at, word: &str| argument(at).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()));
        if !is(at, "deadline") {
            return Ok((Self::default(), at));
        }
        let deadline_ms = argument(at + 1).and_then(parse_integer);
        let deadline_ms = deadline_ms.and_then(|ms| u64::try_from(ms).ok());
        let deadline_ms = deadline_ms.filter(|ms| (1..=DEADLINE_MS_MAX).contains(ms));
        if deadline_ms.is_none() {
            return Err(format!(
                "ERR DEADLINE is the time to wait, from 1 to {DEADLINE_MS_MAX} milliseconds"
            ));
        }
        let lists_late = is(at + 2, "partial");
        let limit = Self {
            deadline_ms,
            lists_late,
        };
        Ok((limit, at + 2 + usize::from(lists_late)))
    }
}

/// The answer about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Said<'a> {
    Null,
    Integer(i64),
    Bulk(&'a [u8]),
    Simple(&'static str),
}

/// Parses a look-up; `None` if the request is no look-up.
///
/// # Errors
/// The error to answer with, as Redis words it.
#[inline]
pub(in crate::server) fn parse(
    command: CommandId,
    arguments: &Arguments,
    buffer: &[u8],
) -> Result<Option<LookUps>, Refusal> {
    use CommandId as Id;
    let one = |look_up| (look_up, 1..2, Combined::Only);
    let every = |look_up, reply| (look_up, 1..arguments.len(), reply);
    let (mut steered, mut limit) = (None, Limit::default());
    let (look_up, keys, reply) = match command {
        Id::Get => one(LookUp::Value),
        Id::MGet => every(LookUp::Value, Combined::Array),
        Id::FondacoMGet => {
            let (options, limit_at) = Steered::parse(|at| arguments.get(at, buffer), 1)?;
            let (asked, keys_at) = Limit::parse(|at| arguments.get(at, buffer), limit_at)?;
            if keys_at == arguments.len() {
                return Err(SYNTAX_ERROR.into());
            }
            if arguments
                .get(keys_at, buffer)
                .is_some_and(|word| word.eq_ignore_ascii_case(b"fields"))
            {
                // No look-up of whole values: a command of its own.
                return Ok(None);
            }
            steered = Some(options.within(asked.deadline_ms));
            limit = asked;
            (LookUp::Value, keys_at..arguments.len(), Combined::Array)
        }
        Id::Exists | Id::Touch => every(LookUp::Exists, Combined::Sum),
        Id::StrLen => one(LookUp::Length),
        Id::Type => one(LookUp::Type),
        Id::GetRange | Id::SubStr => one(range(arguments, buffer)?),
        Id::Ttl => one(LookUp::TimeLeft(Unit::Seconds)),
        Id::PTtl => one(LookUp::TimeLeft(Unit::Milliseconds)),
        Id::ExpireTime => one(LookUp::ExpiryTime(Unit::Seconds)),
        Id::PExpireTime => one(LookUp::ExpiryTime(Unit::Milliseconds)),
        Id::ObjectEncoding => (LookUp::Encoding, 2..3, Combined::Only),
        Id::ObjectRefCount => (LookUp::References, 2..3, Combined::Only),
        Id::MemoryUsage => (memory(arguments, buffer)?, 2..3, Combined::Only),
        _ => return Ok(None),
    };
    Ok(Some(LookUps {
        look_up,
        keys,
        reply,
        steered,
        limit,
    }))
}

fn range(arguments: &Arguments, buffer: &[u8]) -> Result<LookUp, Refusal> {
    let number = |at| arguments.get(at, buffer).and_then(parse_integer);
    match (number(2), number(3)) {
        (Some(first), Some(last)) => Ok(LookUp::Range(first, last)),
        _ => Err(NOT_AN_INTEGER.into()),
    }
}

/// `SAMPLES count` may follow the key. It changes nothing, since values have no parts to sample.
fn memory(arguments: &Arguments, buffer: &[u8]) -> Result<LookUp, Refusal> {
    let rest: Vec<&[u8]> = arguments.iter(buffer).skip(3).collect();
    match rest[..] {
        [] => {}
        [word, count] if word.eq_ignore_ascii_case(b"samples") => match parse_integer(count) {
            Some(0..) => {}
            Some(_) => return Err(SYNTAX_ERROR.into()),
            None => return Err(NOT_AN_INTEGER.into()),
        },
        _ => return Err(SYNTAX_ERROR.into()),
    }
    let key_bytes = arguments.get(2, buffer).unwrap_or_default().len();
    Ok(LookUp::Memory { key_bytes })
}

impl LookUps {
    /// The same as a request on keys of versioned stores.
    pub(in crate::server) fn asked(&self, request: &Request<'_>) -> Asked {
        Asked {
            keys: self
                .keys
                .clone()
                .map(|at| (request.part(at), Operation::LookUp(self.look_up)))
                .collect(),
            reply: self.reply,
        }
    }
}

impl LookUp {
    /// The answer about the value of a key, if the key has one, and its expiry, if it has one.
    #[inline(always)]
    pub(in crate::server) fn of<'a>(
        &self,
        value: Option<&'a [u8]>,
        expires_unix_ms: Option<u64>,
        now_unix_ms: u64,
    ) -> Said<'a> {
        let integer = |known: Option<i64>| known.map_or(Said::Null, Said::Integer);
        match *self {
            Self::Value => value.map_or(Said::Null, Said::Bulk),
            Self::Exists => Said::Integer(i64::from(value.is_some())),
            Self::Length => Said::Integer(value.map_or(0, |value| value.len() as i64)),
            Self::Type => Said::Simple(if value.is_some() { "string" } else { "none" }),
            Self::Range(first, last) => Said::Bulk(part(value.unwrap_or_default(), (first, last))),
            Self::TimeLeft(_) | Self::ExpiryTime(_) if value.is_none() => Said::Integer(-2),
            Self::TimeLeft(unit) => Said::Integer(expires_unix_ms.map_or(-1, |expires_unix_ms| {
                unit.rounded(expires_unix_ms.saturating_sub(now_unix_ms))
            })),
            Self::ExpiryTime(unit) => Said::Integer(expires_unix_ms.map_or(-1, |unix_ms| unit.rounded(unix_ms))),
            Self::Encoding => value.map_or(Said::Null, |value| Said::Bulk(encoding(value).as_bytes())),
            Self::References => integer(value.map(|_| 1)),
            Self::Memory { key_bytes } => integer(value.map(|value| (key_bytes + value.len()) as i64)),
        }
    }

    /// The same of the value of a versioned store.
    pub(super) fn answer_current(&self, current: Option<&Current>, now_unix_ms: u64) -> Answer {
        let value = current.map(|current| &current.value);
        let expires_unix_ms = current.and_then(|current| current.expires_unix_ms);
        match self.of(value.map(|value| &value[..]), expires_unix_ms, now_unix_ms) {
            Said::Null => Answer::Null,
            Said::Integer(number) => Answer::Integer(number),
            Said::Simple(text) => Answer::Simple(text),
            Said::Bulk(said) => Answer::Bulk(match (self, value) {
                (Self::Value, Some(value)) => value.clone(),
                // A part is copied, so that it does not keep the whole value in memory.
                _ => Bytes::copy_from_slice(said),
            }),
        }
    }
}

impl Said<'_> {
    #[inline(always)]
    pub(in crate::server) fn write(self, reply: &mut Reply<'_>) {
        match self {
            Self::Null => reply.null(),
            Self::Integer(number) => reply.integer(number),
            Self::Bulk(bytes) => reply.bulk(bytes),
            Self::Simple(text) => reply.simple(text),
        }
    }
}

/// The encoding in which Redis would keep a string.
fn encoding(value: &[u8]) -> &'static str {
    /// The longest string that Redis keeps together with its header.
    const EMBEDDED_BYTES_MAX: usize = 44;
    match parse_integer(value) {
        Some(_) => "int",
        None if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        None => "raw",
    }
}

/// The part of a value that `GETRANGE` asks for: both ends count, from the end if negative.
fn part(value: &[u8], (first, last): (i64, i64)) -> &[u8] {
    let length = value.len() as i64;
    if first < 0 && last < 0 && first > last {
        return &[];
    }
    let from_start = |at: i64| if at < 0 { (length + at).max(0) } else { at };
    let (first, last) = (from_start(first), from_start(last).min(length - 1));
    if first > last {
        return &[];
    }
    &value[first as usize..=last as usize]
}

#[cfg(test)]
mod tests {
    use super::super::operation::tests::{expiring, value};
    use super::*;

    const NOW_UNIX_MS: u64 = 1_000_000;

    fn said(look_up: LookUp, current: Option<&Current>) -> Answer {
        look_up.answer_current(current, NOW_UNIX_MS)
    }

    #[test]
    fn ranges_are_those_of_getrange() {
        let value = b"This is a string";
        let cases: [((i64, i64), &[u8]); 9] = [
            ((0, 3), b"This"),
            ((-3, -1), b"ing"),
            ((0, -1), b"This is a string"),
            ((10, 100), b"string"),
            ((5, 3), b""),
            ((100, 200), b""),
            ((-1, -5), b""),
            ((-100, 2), b"Thi"),
            ((i64::MIN, i64::MAX), b"This is a string"),
        ];
        for (range, expected) in cases {
            assert_eq!(part(value, range), expected, "{range:?}");
        }
        assert_eq!(part(b"", (0, -1)), b"");
    }

    #[test]
    fn a_versioned_value_is_answered_as_a_batch_one() {
        let current = value("This is a string");
        let here = Some(&current);
        assert_eq!(said(LookUp::Value, here), Answer::Bulk("This is a string".into()));
        assert_eq!(said(LookUp::Range(-6, -1), here), Answer::Bulk("string".into()));
        assert_eq!(said(LookUp::Range(5, 3), here), Answer::Bulk(Bytes::new()));
        assert_eq!(said(LookUp::Range(0, 3), None), Answer::Bulk(Bytes::new()));
        assert_eq!(said(LookUp::Length, here), Answer::Integer(16));
        assert_eq!(said(LookUp::Encoding, here), Answer::Bulk("embstr".into()));
        assert_eq!(said(LookUp::Memory { key_bytes: 3 }, here), Answer::Integer(19));
        assert_eq!(said(LookUp::References, None), Answer::Null);
    }

    #[test]
    fn the_time_left_is_rounded_to_seconds() {
        let left = |current: Option<&Current>, unit| said(LookUp::TimeLeft(unit), current);
        assert_eq!(left(None, Unit::Seconds), Answer::Integer(-2));
        assert_eq!(left(Some(&value("x")), Unit::Seconds), Answer::Integer(-1));
        let current = expiring("x", 1_001_499);
        assert_eq!(left(Some(&current), Unit::Seconds), Answer::Integer(1));
        assert_eq!(left(Some(&current), Unit::Milliseconds), Answer::Integer(1499));
        assert_eq!(left(Some(&expiring("x", 1_001_500)), Unit::Seconds), Answer::Integer(2));
    }

    #[test]
    fn the_expiry_time_counts_from_1970() {
        let end = |current: Option<&Current>, unit| said(LookUp::ExpiryTime(unit), current);
        assert_eq!(end(None, Unit::Seconds), Answer::Integer(-2));
        assert_eq!(end(Some(&value("x")), Unit::Milliseconds), Answer::Integer(-1));
        let current = expiring("x", 1_001_499);
        assert_eq!(end(Some(&current), Unit::Milliseconds), Answer::Integer(1_001_499));
        assert_eq!(end(Some(&current), Unit::Seconds), Answer::Integer(1_001));
        let current = expiring("x", 1_001_500);
        assert_eq!(end(Some(&current), Unit::Seconds), Answer::Integer(1_002));
    }
}
