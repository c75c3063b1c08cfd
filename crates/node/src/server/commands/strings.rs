//! Commands that write the value of a key: `SET` and its kin, `DEL`, `APPEND`, `INCR`, …

use bytes::{Bytes, BytesMut};
use fondaco_client::quorum::AddedMeanwhile;
use fondaco_resp::command::CommandId;
use fondaco_resp::parse_integer;

use super::expiry::{Count, ExpiryOptions, Lifetime, Unit, Word, until};
use super::operation::{Answer, Asked, Change, Circumstances, Combined, Operation, Parser, Request, bulk_or_null};
use super::{NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, wrong_number_of_arguments};
use crate::single_value::Current;

/// An operation on the value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Strings {
    /// `SET` and its kin.
    Set(Set),
    /// `DEL`, `UNLINK`
    Delete,
    /// `GETDEL`
    GetDelete,
    /// `APPEND`
    Append(Bytes),
    /// `SETRANGE`: from this byte on.
    SetRange(usize, Bytes),
    /// `INCR` and its kin.
    Add(i64),
}

/// A value to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Set {
    pub(in crate::server) value: Bytes,
    pub(in crate::server) condition: Condition,
    pub(in crate::server) lifetime: Lifetime,
    pub(in crate::server) reply: SetReply,
}

/// When a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// The answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum SetReply {
    /// `OK`, or null if it was not done.
    Ok,
    /// The value before.
    Former,
    /// 1 or 0.
    Number,
}

/// How a command of this family is read.
#[inline]
pub(super) fn parser(command: CommandId) -> Option<Parser> {
    use CommandId as Id;
    let parser: Parser = match command {
        Id::Set => set,
        Id::SetNx => |request| set_only(request, Condition::IfAbsent, SetReply::Number),
        Id::SetEx => |request| set_for(request, Unit::Seconds),
        Id::PSetEx => |request| set_for(request, Unit::Milliseconds),
        Id::GetSet => |request| set_only(request, Condition::Always, SetReply::Former),
        Id::MSet => mset,
        Id::Del | Id::Unlink => |request| Ok(Asked::every(request, &Operation::Strings(Strings::Delete))),
        Id::GetDel => |request| Ok(one(request, Strings::GetDelete)),
        Id::Append => |request| Ok(one(request, Strings::Append(request.part(2)))),
        Id::SetRange => |request| match usize::try_from(request.integer(2)?) {
            Ok(offset) => Ok(one(request, Strings::SetRange(offset, request.part(3)))),
            Err(_) => Err("ERR offset is out of range".into()),
        },
        Id::Incr => |request| Ok(one(request, Strings::Add(1))),
        Id::Decr => |request| Ok(one(request, Strings::Add(-1))),
        Id::IncrBy => |request| Ok(one(request, Strings::Add(request.integer(2)?))),
        Id::DecrBy => |request| match request.integer(2)?.checked_neg() {
            Some(increment) => Ok(one(request, Strings::Add(increment))),
            None => Err("ERR decrement would overflow".into()),
        },
        _ => return None,
    };
    Some(parser)
}

fn one(request: &Request<'_>, operation: impl Into<Strings>) -> Asked {
    Asked::one(request, Operation::Strings(operation.into()))
}

impl From<Set> for Strings {
    fn from(set: Set) -> Self {
        Self::Set(set)
    }
}

/// Writes the argument at a place, whatever was there, for as long as values of the store live.
fn value(request: &Request<'_>, at: usize) -> Set {
    Set {
        value: request.part(at),
        condition: Condition::Always,
        lifetime: Lifetime::Default,
        reply: SetReply::Ok,
    }
}

fn set_only(request: &Request<'_>, condition: Condition, reply: SetReply) -> Result<Asked, Refusal> {
    let set = Set {
        condition,
        reply,
        ..value(request, 2)
    };
    Ok(one(request, set))
}

fn set_for(request: &Request<'_>, unit: Unit) -> Result<Asked, Refusal> {
    let lifetime = until(request, 2, unit, Count::FromNow)?;
    Ok(one(
        request,
        Set {
            lifetime,
            ..value(request, 3)
        },
    ))
}

fn mset(request: &Request<'_>) -> Result<Asked, Refusal> {
    if request.len().is_multiple_of(2) {
        return Err(wrong_number_of_arguments("mset"));
    }
    let pair = |at| (request.part(at), Operation::Strings(value(request, at + 1).into()));
    Ok(Asked {
        keys: (1..request.len()).step_by(2).map(pair).collect(),
        reply: Combined::Ok,
    })
}

/// `SET`, with its options in the order in which they stand. The same option may stand twice, and the last one counts; two
/// different ones of a kind may not.
fn set(request: &Request<'_>) -> Result<Asked, Refusal> {
    let mut set = value(request, 2);
    let mut expiry = ExpiryOptions::default();
    let mut at = 3;
    while at < request.len() {
        let condition = match () {
            () if request.is(at, "NX") => Some(Condition::IfAbsent),
            () if request.is(at, "XX") => Some(Condition::IfPresent),
            () => None,
        };
        at = match condition {
            Some(condition) if [Condition::Always, condition].contains(&set.condition) => {
                set.condition = condition;
                at + 1
            }
            Some(_) => return Err(SYNTAX_ERROR.into()),
            None if request.is(at, "GET") => {
                set.reply = SetReply::Former;
                at + 1
            }
            None => expiry.take(request, at, Word::KeepTtl)?,
        };
    }
    if let Some(lifetime) = expiry.lifetime(request) {
        set.lifetime = lifetime?;
    }
    Ok(one(request, set))
}

impl Set {
    /// Whether the value is written whatever the key has now, and that is not asked for.
    pub(in crate::server) fn is_unconditional(&self) -> bool {
        self.condition == Condition::Always && self.reply == SetReply::Ok && self.lifetime != Lifetime::Kept
    }

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
                expires_unix_ms: here.expiry_of(self.lifetime, current),
            }),
        };
        (change, answer)
    }
}

impl Strings {
    /// The bytes of the value that comes with it.
    pub(in crate::server) fn value_bytes(&self) -> usize {
        match self {
            Self::Set(set) => set.value.len(),
            Self::Append(tail) => tail.len(),
            Self::SetRange(_, part) => part.len(),
            Self::Delete | Self::GetDelete | Self::Add(_) => 0,
        }
    }

    pub(super) fn added_meanwhile(&self) -> AddedMeanwhile {
        match self {
            Self::Delete => AddedMeanwhile::Stays,
            Self::Set(set) if set.condition == Condition::Always && set.reply == SetReply::Ok => AddedMeanwhile::Stays,
            _ => AddedMeanwhile::Conflicts,
        }
    }

    pub(in crate::server) fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        let value = current.map(|current| &current.value);
        match self {
            Self::Set(set) => set.apply(current, here),
            Self::Delete => match value {
                Some(_) => (Change::Delete, Answer::Integer(1)),
                None => (Change::None, Answer::Integer(0)),
            },
            Self::GetDelete => match value {
                Some(value) => (Change::Delete, Answer::Bulk(value.clone())),
                None => (Change::None, Answer::Null),
            },
            Self::Append(tail) => append(tail, current, here),
            Self::SetRange(offset, part) => set_range(*offset, part, current, here),
            Self::Add(increment) => add(*increment, current, here),
        }
    }
}

/// A changed value, which expires when the former one would have.
fn changed(value: Bytes, former: Option<&Current>, here: &Circumstances) -> Change {
    Change::Write(Current {
        value,
        expires_unix_ms: here.expiry_of(Lifetime::Kept, former),
    })
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
    (changed(value.freeze(), current, here), answer)
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
    (changed(value.freeze(), current, here), answer)
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
            changed(Bytes::from(sum.to_string()), current, here),
            Answer::Integer(sum),
        ),
        None => (Change::None, Answer::Error(OVERFLOW.into())),
    }
}

const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

#[cfg(test)]
mod tests {
    use super::super::operation::tests::{HERE, asked, expiring, operation, value};
    use super::*;

    fn set(text: &str) -> Set {
        match operation(text).unwrap() {
            Operation::Strings(Strings::Set(set)) => set,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_of_set_may_stand_in_any_order_and_case() {
        let expected = Set {
            value: "v".into(),
            condition: Condition::IfPresent,
            lifetime: Lifetime::Until { unix_ms: 6_000 },
            reply: SetReply::Former,
        };
        assert_eq!(set("SET s:k v XX GET EX 5"), expected);
        assert_eq!(set("set s:k v px 5000 get xx"), expected);
        assert_eq!(set("SET s:k v EXAT 6 XX GET"), expected);
        assert_eq!(set("SET s:k v PX 1 PX 5000 XX XX GET"), expected);
        assert_eq!(set("SETEX s:k 5 v").lifetime, expected.lifetime);
        assert_eq!(set("PSETEX s:k 5000 v").lifetime, expected.lifetime);
        assert_eq!(set("SET s:k v KEEPTTL").lifetime, Lifetime::Kept);
    }

    #[test]
    fn options_that_exclude_one_another_are_a_syntax_error() {
        for text in [
            "SET s:k v NX XX",
            "SET s:k v EX 5 PX 5",
            "SET s:k v EX 5 KEEPTTL",
            "SET s:k v KEEPTTL PXAT 5",
            "SET s:k v EX",
            "SET s:k v PERSIST",
            "SET s:k v 5",
        ] {
            assert_eq!(asked(text), Err(SYNTAX_ERROR.into()), "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_in_the_words_of_redis() {
        let invalid = |command: &str| format!("ERR invalid expire time in '{command}' command");
        for (text, error) in [
            ("INCRBY s:k 1x", NOT_AN_INTEGER.into()),
            ("DECRBY s:k -9223372036854775808", "ERR decrement would overflow".into()),
            ("SETRANGE s:k -1 x", "ERR offset is out of range".into()),
            ("SET s:k v EX five", NOT_AN_INTEGER.into()),
            ("SET s:k v EX 0", invalid("set")),
            ("SET s:k v PXAT -1", invalid("set")),
            ("SETEX s:k 9223372036854775807 v", invalid("setex")),
            ("PSETEX s:k 9223372036854775807 v", invalid("psetex")),
            (
                "MSET s:k 1 s:l",
                "ERR wrong number of arguments for 'mset' command".into(),
            ),
        ] {
            assert_eq!(asked(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_request_on_several_keys_asks_the_same_of_each() {
        let asked = asked("DEL s:a s:b s:a").unwrap().unwrap();
        let keys: Vec<&[u8]> = asked.keys.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, [b"s:a", b"s:b", b"s:a"]);
        let delete = Operation::Strings(Strings::Delete);
        assert!(asked.keys.iter().all(|(_, operation)| *operation == delete));
        assert_eq!(asked.reply, Combined::Sum);
    }

    #[test]
    fn a_number_grows_and_keeps_its_expiry() {
        let (change, answer) = Strings::Add(2).apply(Some(&expiring("40", 2_000_000)), &HERE);
        assert_eq!(
            (change, answer),
            (Change::Write(expiring("42", 2_000_000)), Answer::Integer(42))
        );
        let (change, answer) = Strings::Add(1).apply(None, &HERE);
        assert_eq!((change, answer), (Change::Write(value("1")), Answer::Integer(1)));
    }

    #[test]
    fn a_value_that_cannot_be_added_to_stays() {
        for (number, increment, error) in [
            ("4x", 1, NOT_AN_INTEGER),
            (" 4", 1, NOT_AN_INTEGER),
            ("9223372036854775807", 1, OVERFLOW),
        ] {
            let (change, answer) = Strings::Add(increment).apply(Some(&value(number)), &HERE);
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
        for operation in [Strings::Append(long.clone()), Strings::SetRange(7, long)] {
            let (change, answer) = operation.apply(Some(&value("abcdefgh")), &HERE);
            assert_eq!((change, answer), (Change::None, Answer::Error(TOO_LONG.into())));
        }
    }

    #[test]
    fn a_part_that_begins_behind_the_end_leaves_zeros_between() {
        let part = Bytes::from_static(b"x");
        let (change, answer) = Strings::SetRange(3, part).apply(Some(&value("a")), &HERE);
        assert_eq!((change, answer), (Change::Write(value("a\0\0x")), Answer::Integer(4)));
    }

    #[test]
    fn a_value_lives_as_its_store_says_unless_told_otherwise() {
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
        let expiry = |lifetime, former: Option<&Current>| match set(lifetime).apply(former, &here).0 {
            Change::Write(written) => written.expires_unix_ms,
            change => panic!("{change:?}"),
        };
        assert_eq!(expiry(Lifetime::Default, None), Some(1_001_000));
        assert_eq!(expiry(Lifetime::Endless, None), None);
        assert_eq!(expiry(Lifetime::Kept, None), Some(1_001_000));
        assert_eq!(expiry(Lifetime::Kept, Some(&value("y"))), None);
        assert_eq!(expiry(Lifetime::Until { unix_ms: 7 }, None), Some(7));
    }
}
