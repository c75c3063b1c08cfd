//! What an operation makes of the value of its key: a pure function of the value, the time and the limits.
//!
//! Values, replies and errors are those of Redis 7.0. One operation may be applied to several values, when others
//! write meanwhile, and only the last answer counts.

use bytes::{Bytes, BytesMut};
use fondaco_resp::parse_integer;

use super::super::NOT_AN_INTEGER;
use super::operation::{Answer, Condition, Expire, ExpireOnly, Lifetime, Operation, Set, SetReply, Than, Unit};
use crate::single_value::Current;

/// What an operation makes of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Change {
    /// Nothing.
    None,
    /// This value.
    Write(Current),
    /// No value.
    Delete,
}

/// What operations are carried out under.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Circumstances {
    /// The time.
    pub(in crate::server) now_unix_ms: u64,
    /// How long values live unless told otherwise.
    pub(in crate::server) ttl_ms: Option<u64>,
    /// The longest value.
    pub(in crate::server) value_bytes_max: usize,
}

impl Circumstances {
    /// When a value that is written now ends.
    pub(in crate::server) fn end_of(&self, lifetime: Lifetime, former: Option<&Current>) -> Option<u64> {
        match lifetime {
            Lifetime::Default => self.ttl_ms.map(|ttl_ms| self.now_unix_ms.saturating_add(ttl_ms)),
            Lifetime::Kept => match former {
                Some(former) => former.expires_unix_ms,
                None => self.end_of(Lifetime::Default, None),
            },
            Lifetime::Endless => None,
            Lifetime::Until { unix_ms } => Some(u64::try_from(unix_ms).unwrap_or(0)),
        }
    }

    /// The value that a changed one of no other end is.
    fn changed(&self, value: Bytes, former: Option<&Current>) -> Change {
        Change::Write(Current {
            value,
            expires_unix_ms: self.end_of(Lifetime::Kept, former),
        })
    }
}

impl Operation {
    /// Applies it to the value that is there, if one is.
    pub(in crate::server) fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        let value = current.map(|current| &current.value);
        match self {
            Self::Get | Self::GetExpire(None) => (Change::None, bulk_or_null(value)),
            Self::Exists => (Change::None, Answer::Integer(i64::from(value.is_some()))),
            Self::StrLen => (Change::None, length(value)),
            Self::Type => (
                Change::None,
                Answer::Simple(if value.is_some() { "string" } else { "none" }),
            ),
            Self::TimeLeft(unit) => (Change::None, Answer::Integer(time_left(current, *unit, here))),
            Self::End(unit) => (Change::None, Answer::Integer(end(current, *unit))),
            Self::Set(set) => set.apply(current, here),
            Self::Delete => match value {
                Some(_) => (Change::Delete, Answer::Integer(1)),
                None => (Change::None, Answer::Integer(0)),
            },
            Self::GetDelete => match value {
                Some(value) => (Change::Delete, Answer::Bulk(value.clone())),
                None => (Change::None, Answer::Null),
            },
            Self::GetExpire(Some(lifetime)) => get_expire(lifetime, current, here),
            Self::Append(tail) => append(tail, current, here),
            Self::SetRange(offset, part) => set_range(*offset, part, current, here),
            Self::Add(increment) => add(*increment, current, here),
            // Of these the value alone says nothing.
            Self::Siblings | Self::PutOver { .. } | Self::DeleteOver { .. } => (Change::None, Answer::Null),
            Self::Expire(expire) => expire.apply(current, here),
            Self::Persist => match current {
                Some(current) if current.expires_unix_ms.is_some() => (
                    Change::Write(Current {
                        value: current.value.clone(),
                        expires_unix_ms: None,
                    }),
                    Answer::Integer(1),
                ),
                _ => (Change::None, Answer::Integer(0)),
            },
        }
    }
}

impl Set {
    fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        let is_done = match self.condition {
            Condition::Always => true,
            Condition::IfAbsent => current.is_none(),
            Condition::IfPresent => current.is_some(),
        };
        let answer = match (self.reply, is_done) {
            (SetReply::Ok, true) => Answer::Ok,
            (SetReply::Ok, false) => Answer::Null,
            (SetReply::Former, _) => bulk_or_null(current.map(|current| &current.value)),
            (SetReply::Number, is_done) => Answer::Integer(i64::from(is_done)),
        };
        let change = match is_done {
            false => Change::None,
            true => Change::Write(Current {
                value: self.value.clone(),
                expires_unix_ms: here.end_of(self.lifetime, current),
            }),
        };
        (change, answer)
    }
}

impl Expire {
    fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        let Some(current) = current else {
            return (Change::None, Answer::Integer(0));
        };
        let end = current
            .expires_unix_ms
            .map(|end| i64::try_from(end).unwrap_or(i64::MAX));
        // A value without an end ends later than any other.
        let is_other = |than| match (than, end) {
            (Than::Later, end) => end.is_some_and(|end| self.unix_ms > end),
            (Than::Earlier, end) => end.is_none_or(|end| self.unix_ms < end),
        };
        let is_done = match self.only {
            ExpireOnly::Always => true,
            ExpireOnly::IfEndless => end.is_none(),
            ExpireOnly::IfEnding(than) => end.is_some() && than.is_none_or(is_other),
            ExpireOnly::If(than) => is_other(than),
        };
        if !is_done {
            return (Change::None, Answer::Integer(0));
        }
        (until(self.unix_ms, current, here), Answer::Integer(1))
    }
}

/// A value that ends at a moment, which may have passed.
fn until(unix_ms: i64, current: &Current, here: &Circumstances) -> Change {
    match u64::try_from(unix_ms) {
        Ok(unix_ms) if unix_ms > here.now_unix_ms => Change::Write(Current {
            value: current.value.clone(),
            expires_unix_ms: Some(unix_ms),
        }),
        _ => Change::Delete,
    }
}

fn get_expire(
    lifetime: &Result<Lifetime, String>,
    current: Option<&Current>,
    here: &Circumstances,
) -> (Change, Answer) {
    let Some(current) = current else {
        return (Change::None, Answer::Null);
    };
    let lifetime = match lifetime {
        Ok(lifetime) => *lifetime,
        Err(error) => return (Change::None, Answer::Error(error.clone())),
    };
    let change = match lifetime {
        Lifetime::Until { unix_ms } => until(unix_ms, current, here),
        Lifetime::Endless if current.expires_unix_ms.is_some() => Change::Write(Current {
            value: current.value.clone(),
            expires_unix_ms: None,
        }),
        Lifetime::Endless | Lifetime::Default | Lifetime::Kept => Change::None,
    };
    (change, Answer::Bulk(current.value.clone()))
}

fn append(tail: &Bytes, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
    let former = current.map_or(&[][..], |current| &current.value);
    if former.len() + tail.len() > here.value_bytes_max {
        return (Change::None, Answer::Error(TOO_LONG.into()));
    }
    let mut value = BytesMut::with_capacity(former.len() + tail.len());
    value.extend_from_slice(former);
    value.extend_from_slice(tail);
    let answer = Answer::Integer(value.len() as i64);
    (here.changed(value.freeze(), current), answer)
}

fn set_range(offset: usize, part: &Bytes, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
    let former = current.map_or(&[][..], |current| &current.value);
    if part.is_empty() {
        return (Change::None, Answer::Integer(former.len() as i64));
    }
    let end = offset.saturating_add(part.len());
    if end > here.value_bytes_max {
        return (Change::None, Answer::Error(TOO_LONG.into()));
    }
    let mut value = BytesMut::with_capacity(former.len().max(end));
    value.extend_from_slice(former);
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(part);
    let answer = Answer::Integer(value.len() as i64);
    (here.changed(value.freeze(), current), answer)
}

fn add(increment: i64, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
    let number = match current {
        None => Some(0),
        Some(current) => parse_integer(&current.value),
    };
    let Some(number) = number else {
        return (Change::None, Answer::Error(NOT_AN_INTEGER.into()));
    };
    match number.checked_add(increment) {
        Some(sum) => (
            here.changed(Bytes::from(sum.to_string()), current),
            Answer::Integer(sum),
        ),
        None => (Change::None, Answer::Error(OVERFLOW.into())),
    }
}

fn bulk_or_null(value: Option<&Bytes>) -> Answer {
    value.map_or(Answer::Null, |value| Answer::Bulk(value.clone()))
}

fn length(value: Option<&Bytes>) -> Answer {
    Answer::Integer(value.map_or(0, |value| value.len() as i64))
}

/// -2 where there is no value, -1 where it does not end.
fn end(current: Option<&Current>, unit: Unit) -> i64 {
    let Some(current) = current else { return -2 };
    let Some(end_ms) = current.expires_unix_ms else {
        return -1;
    };
    let end_ms = i64::try_from(end_ms).unwrap_or(i64::MAX);
    match unit {
        Unit::Milliseconds => end_ms,
        Unit::Seconds => end_ms.saturating_add(500) / 1000,
    }
}

fn time_left(current: Option<&Current>, unit: Unit, here: &Circumstances) -> i64 {
    match current {
        None => -2,
        Some(Current {
            expires_unix_ms: None, ..
        }) => -1,
        Some(Current {
            expires_unix_ms: Some(end),
            ..
        }) => {
            let left_ms = i64::try_from(end.saturating_sub(here.now_unix_ms)).unwrap_or(i64::MAX);
            match unit {
                Unit::Milliseconds => left_ms,
                Unit::Seconds => left_ms.saturating_add(500) / 1000,
            }
        }
    }
}

const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Circumstances = Circumstances {
        now_unix_ms: 1_000_000,
        ttl_ms: None,
        value_bytes_max: 16,
    };

    fn value(text: &'static str) -> Current {
        Current {
            value: Bytes::from_static(text.as_bytes()),
            expires_unix_ms: None,
        }
    }

    fn ending(text: &'static str, expires_unix_ms: u64) -> Current {
        Current {
            expires_unix_ms: Some(expires_unix_ms),
            ..value(text)
        }
    }

    #[test]
    fn a_number_grows_and_keeps_its_end() {
        let (change, answer) = Operation::Add(2).apply(Some(&ending("40", 2_000_000)), &HERE);
        assert_eq!(
            (change, answer),
            (Change::Write(ending("42", 2_000_000)), Answer::Integer(42))
        );
        let (change, answer) = Operation::Add(1).apply(None, &HERE);
        assert_eq!((change, answer), (Change::Write(value("1")), Answer::Integer(1)));
    }

    #[test]
    fn what_is_no_number_or_too_large_a_one_stays_as_it_is() {
        for (number, increment, error) in [
            ("4x", 1, NOT_AN_INTEGER),
            (" 4", 1, NOT_AN_INTEGER),
            ("9223372036854775807", 1, OVERFLOW),
        ] {
            let (change, answer) = Operation::Add(increment).apply(Some(&value(number)), &HERE);
            assert_eq!(
                (change, answer),
                (Change::None, Answer::Error(error.into())),
                "{number}"
            );
        }
    }

    #[test]
    fn a_value_does_not_grow_beyond_the_limit() {
        let long = Bytes::from_static(b"0123456789");
        for operation in [Operation::Append(long.clone()), Operation::SetRange(7, long)] {
            let (change, answer) = operation.apply(Some(&value("abcdefgh")), &HERE);
            assert_eq!((change, answer), (Change::None, Answer::Error(TOO_LONG.into())));
        }
    }

    #[test]
    fn a_part_that_begins_behind_the_end_leaves_zeros_between() {
        let part = Bytes::from_static(b"x");
        let (change, answer) = Operation::SetRange(3, part).apply(Some(&value("a")), &HERE);
        assert_eq!((change, answer), (Change::Write(value("a\0\0x")), Answer::Integer(4)));
    }

    #[test]
    fn an_end_in_the_past_deletes() {
        let expire = |unix_ms, only| Operation::Expire(Expire { unix_ms, only });
        let current = ending("x", 1_500_000);
        for unix_ms in [-5, 0, 1_000_000] {
            let (change, answer) = expire(unix_ms, ExpireOnly::Always).apply(Some(&current), &HERE);
            assert_eq!((change, answer), (Change::Delete, Answer::Integer(1)));
        }
        let (change, _) = expire(1_000_001, ExpireOnly::Always).apply(Some(&current), &HERE);
        assert_eq!(change, Change::Write(ending("x", 1_000_001)));
        let (change, answer) = expire(5, ExpireOnly::Always).apply(None, &HERE);
        assert_eq!((change, answer), (Change::None, Answer::Integer(0)));
    }

    #[test]
    fn a_value_without_an_end_ends_later_than_any_other() {
        let done = |only, current: &Current| {
            let operation = Operation::Expire(Expire {
                unix_ms: 2_000_000,
                only,
            });
            operation.apply(Some(current), &HERE).1 == Answer::Integer(1)
        };
        let (endless, soon, late) = (value("x"), ending("x", 1_500_000), ending("x", 3_000_000));
        let cases = [
            (ExpireOnly::IfEndless, [true, false, false]),
            (ExpireOnly::IfEnding(None), [false, true, true]),
            (ExpireOnly::If(Than::Later), [false, true, false]),
            (ExpireOnly::If(Than::Earlier), [true, false, true]),
            (ExpireOnly::IfEnding(Some(Than::Later)), [false, true, false]),
            (ExpireOnly::IfEnding(Some(Than::Earlier)), [false, false, true]),
        ];
        for (only, expected) in cases {
            assert_eq!(
                [&endless, &soon, &late].map(|current| done(only, current)),
                expected,
                "{only:?}"
            );
        }
    }

    #[test]
    fn a_value_lives_as_long_as_its_store_says_unless_told_otherwise() {
        let here = Circumstances {
            ttl_ms: Some(1000),
            ..HERE
        };
        let set = |lifetime| Set {
            value: Bytes::from_static(b"x"),
            condition: Condition::Always,
            lifetime,
            reply: SetReply::Ok,
        };
        let end = |lifetime, former: Option<&Current>| match set(lifetime).apply(former, &here).0 {
            Change::Write(written) => written.expires_unix_ms,
            change => panic!("{change:?}"),
        };
        assert_eq!(end(Lifetime::Default, None), Some(1_001_000));
        assert_eq!(end(Lifetime::Endless, None), None);
        assert_eq!(end(Lifetime::Kept, None), Some(1_001_000));
        assert_eq!(end(Lifetime::Kept, Some(&value("y"))), None);
        assert_eq!(end(Lifetime::Until { unix_ms: 7 }, None), Some(7));
    }

    #[test]
    fn the_time_left_is_rounded_to_seconds() {
        let left = |current: Option<&Current>, unit| Operation::TimeLeft(unit).apply(current, &HERE).1;
        assert_eq!(left(None, Unit::Seconds), Answer::Integer(-2));
        assert_eq!(left(Some(&value("x")), Unit::Seconds), Answer::Integer(-1));
        let current = ending("x", 1_001_499);
        assert_eq!(left(Some(&current), Unit::Seconds), Answer::Integer(1));
        assert_eq!(left(Some(&current), Unit::Milliseconds), Answer::Integer(1499));
        assert_eq!(left(Some(&ending("x", 1_001_500)), Unit::Seconds), Answer::Integer(2));
    }

    #[test]
    fn the_end_is_told_as_the_time_since_1970() {
        let end = |current: Option<&Current>, unit| Operation::End(unit).apply(current, &HERE).1;
        assert_eq!(end(None, Unit::Seconds), Answer::Integer(-2));
        assert_eq!(end(Some(&value("x")), Unit::Milliseconds), Answer::Integer(-1));
        let current = ending("x", 1_001_499);
        assert_eq!(end(Some(&current), Unit::Milliseconds), Answer::Integer(1_001_499));
        assert_eq!(end(Some(&current), Unit::Seconds), Answer::Integer(1_001));
        assert_eq!(
            end(Some(&ending("x", 1_001_500)), Unit::Seconds),
            Answer::Integer(1_002)
        );
    }
}
