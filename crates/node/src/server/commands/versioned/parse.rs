//! Requests on versioned stores, as Redis reads their arguments: which keys they have, and what they ask of
//! each.
//!
//! Errors are found in the order in which Redis 7.0 finds them, and are in its words. Options with times are read
//! in `lifetime`.

use bytes::Bytes;
use fondaco_resp::command::CommandId;
use fondaco_resp::{Arguments, parse_integer};
use smallvec::{SmallVec, smallvec};

use super::super::{NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use super::lifetime::{Clock, Count};
use super::operation::{Condition, Lifetime, Operation, Set, SetReply, Unit};

/// A request on keys of versioned stores.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct Asked {
    /// The wire keys, and what is asked of each.
    pub(in crate::server) keys: SmallVec<[(Bytes, Operation); 1]>,
    pub(in crate::server) reply: Combined,
}

/// How the answers for several keys become one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Combined {
    /// There is one key: its answer is the reply.
    Only,
    /// The sum of all numbers.
    Sum,
    /// `OK`, when all are done.
    Ok,
}

/// One request: its bytes, and where its arguments are in them.
pub(in crate::server) struct Request<'a> {
    pub(in crate::server) bytes: Bytes,
    pub(in crate::server) arguments: &'a Arguments,
}

impl Request<'_> {
    pub(super) fn len(&self) -> usize {
        self.arguments.len()
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        self.arguments.get(at, &self.bytes).unwrap_or_default()
    }

    /// An argument, without copying it if it lies in the bytes.
    pub(super) fn part(&self, at: usize) -> Bytes {
        self.kept(self.get(at))
    }

    /// All arguments behind the command's name, as [`part`](Self::part) gives them.
    pub(in crate::server) fn parts(&self) -> impl Iterator<Item = Bytes> {
        let arguments = self.arguments.iter(&self.bytes).skip(1);
        arguments.map(|argument| self.kept(argument))
    }

    fn kept(&self, argument: &[u8]) -> Bytes {
        match self.arguments.lie_in_buffer() {
            true => self.bytes.slice_ref(argument),
            false => Bytes::copy_from_slice(argument),
        }
    }

    pub(super) fn integer(&self, at: usize) -> Result<i64, Refusal> {
        parse_integer(self.get(at)).ok_or_else(|| NOT_AN_INTEGER.into())
    }

    pub(super) fn is(&self, at: usize, word: &str) -> bool {
        self.get(at).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// What a request asks for; `None` if that is nothing that versioned stores do.
///
/// # Errors
/// The error to answer with, as Redis words it.
pub(in crate::server) fn parse(
    command: CommandId,
    request: &Request<'_>,
    now_unix_ms: u64,
) -> Result<Option<Asked>, Refusal> {
    use CommandId as Id;
    let one = |operation| Asked {
        keys: smallvec![(request.part(1), operation)],
        reply: Combined::Only,
    };
    let every = |operation: Operation| Asked {
        keys: (1..request.len())
            .map(|at| (request.part(at), operation.clone()))
            .collect(),
        reply: Combined::Sum,
    };
    let clock = Clock { command, now_unix_ms };
    let set = |at, condition, lifetime, reply| {
        one(Operation::Set(Set {
            value: request.part(at),
            condition,
            lifetime,
            reply,
        }))
    };
    let always = |at, lifetime, reply| set(at, Condition::Always, lifetime, reply);
    let asked = match command {
        Id::Get => one(Operation::Get),
        Id::StrLen => one(Operation::StrLen),
        Id::Type => one(Operation::Type),
        Id::Exists | Id::Touch => every(Operation::Exists),
        Id::Ttl => one(Operation::TimeLeft(Unit::Seconds)),
        Id::PTtl => one(Operation::TimeLeft(Unit::Milliseconds)),
        Id::ExpireTime => one(Operation::End(Unit::Seconds)),
        Id::PExpireTime => one(Operation::End(Unit::Milliseconds)),
        Id::Set => one(Operation::Set(clock.set(request)?)),
        Id::SetNx => set(2, Condition::IfAbsent, Lifetime::Default, SetReply::Number),
        Id::SetEx => always(
            3,
            clock.until(request.get(2), Unit::Seconds, Count::FromNow)?,
            SetReply::Ok,
        ),
        Id::PSetEx => {
            let lifetime = clock.until(request.get(2), Unit::Milliseconds, Count::FromNow)?;
            always(3, lifetime, SetReply::Ok)
        }
        Id::GetSet => always(2, Lifetime::Default, SetReply::Former),
        Id::MSet => mset(request)?,
        Id::Del | Id::Unlink => every(Operation::Delete),
        Id::GetDel => one(Operation::GetDelete),
        Id::GetEx => one(Operation::GetExpire(clock.get_expire(request)?)),
        Id::Append => one(Operation::Append(request.part(2))),
        Id::SetRange => match usize::try_from(request.integer(2)?) {
            Ok(offset) => one(Operation::SetRange(offset, request.part(3))),
            Err(_) => return Err("ERR offset is out of range".into()),
        },
        Id::Incr => one(Operation::Add(1)),
        Id::Decr => one(Operation::Add(-1)),
        Id::IncrBy => one(Operation::Add(request.integer(2)?)),
        Id::DecrBy => match request.integer(2)?.checked_neg() {
            Some(increment) => one(Operation::Add(increment)),
            None => return Err("ERR decrement would overflow".into()),
        },
        Id::Expire => one(clock.expire(request, Unit::Seconds, Count::FromNow)?),
        Id::PExpire => one(clock.expire(request, Unit::Milliseconds, Count::FromNow)?),
        Id::ExpireAt => one(clock.expire(request, Unit::Seconds, Count::FromEpoch)?),
        Id::PExpireAt => one(clock.expire(request, Unit::Milliseconds, Count::FromEpoch)?),
        Id::Persist => one(Operation::Persist),
        Id::FondacoGet => one(Operation::Siblings),
        Id::FondacoPut => {
            let lifetime = match request.len() {
                4 => Lifetime::Default,
                6 if request.is(4, "PX") => clock.until(request.get(5), Unit::Milliseconds, Count::FromNow)?,
                _ => return Err(SYNTAX_ERROR.into()),
            };
            one(Operation::PutOver {
                context: request.part(2),
                value: request.part(3),
                lifetime,
            })
        }
        Id::FondacoDel => one(Operation::DeleteOver {
            context: request.part(2),
        }),
        _ => return Ok(None),
    };
    Ok(Some(asked))
}

fn mset(request: &Request<'_>) -> Result<Asked, Refusal> {
    if request.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'mset' command".into());
    }
    let pair = |at| {
        let set = Set {
            value: request.part(at + 1),
            condition: Condition::Always,
            lifetime: Lifetime::Default,
            reply: SetReply::Ok,
        };
        (request.part(at), Operation::Set(set))
    };
    Ok(Asked {
        keys: (1..request.len()).step_by(2).map(pair).collect(),
        reply: Combined::Ok,
    })
}

#[cfg(test)]
mod tests {
    use fondaco_resp::command::resolve;
    use fondaco_resp::{Limits, Parse, parse_request};

    use super::super::operation::{Expire, ExpireOnly};
    use super::*;

    const NOW_UNIX_MS: u64 = 1_000;

    fn asked(text: &str) -> Result<Option<Asked>, Refusal> {
        let line = format!("{text}\r\n");
        let mut arguments = Arguments::new();
        let parsed = parse_request(line.as_bytes(), &Limits::default(), &mut arguments);
        assert!(matches!(parsed, Ok(Parse::Complete { .. })), "{text}");
        let command = resolve(&arguments, line.as_bytes())?.id;
        let request = Request {
            bytes: Bytes::from(line),
            arguments: &arguments,
        };
        parse(command, &request, NOW_UNIX_MS)
    }

    fn operation(text: &str) -> Result<Operation, Refusal> {
        let mut asked = asked(text)?.unwrap();
        assert_eq!(asked.keys.len(), 1);
        Ok(asked.keys.remove(0).1)
    }

    fn set(text: &str) -> Set {
        match operation(text).unwrap() {
            Operation::Set(set) => set,
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
            "GETEX s:k PERSIST EX 5",
            "GETEX s:k KEEPTTL",
            "GETEX s:k NX",
            "GETEX s:k PX",
            "FONDACO.PUT s:k c v PX",
            "FONDACO.PUT s:k c v EX 5",
        ] {
            assert_eq!(asked(text), Err(SYNTAX_ERROR.into()), "{text}");
        }
    }

    #[test]
    fn numbers_and_times_that_cannot_be_are_refused_in_the_words_of_redis() {
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
            ("EXPIRE s:k 9223372036854775807", invalid("expire")),
            ("PEXPIRE s:k 9223372036854775807", invalid("pexpire")),
            ("EXPIRE s:k 5 YY", "ERR Unsupported option YY".into()),
            (
                "EXPIRE s:k five NX GT",
                "ERR NX and XX, GT or LT options at the same time are not compatible".into(),
            ),
            (
                "EXPIRE s:k 5 GT XX LT",
                "ERR GT and LT options at the same time are not compatible".into(),
            ),
            (
                "MSET s:k 1 s:l",
                "ERR wrong number of arguments for 'mset' command".into(),
            ),
        ] {
            assert_eq!(asked(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_time_of_getex_is_checked_where_there_is_a_value() {
        let Operation::GetExpire(Some(Err(error))) = operation("GETEX s:k EX 0").unwrap() else {
            panic!("it is refused later");
        };
        assert_eq!(error, "ERR invalid expire time in 'getex' command");
    }

    #[test]
    fn a_time_in_the_past_is_taken_by_expire() {
        let expire = Expire {
            unix_ms: -4_000,
            only: ExpireOnly::Always,
        };
        assert_eq!(operation("EXPIRE s:k -5").unwrap(), Operation::Expire(expire));
    }

    #[test]
    fn a_request_on_several_keys_asks_the_same_of_each() {
        let asked = asked("DEL s:a s:b s:a").unwrap().unwrap();
        let keys: Vec<&[u8]> = asked.keys.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, [b"s:a", b"s:b", b"s:a"]);
        assert!(asked.keys.iter().all(|(_, operation)| *operation == Operation::Delete));
        assert_eq!(asked.reply, Combined::Sum);
    }

    #[test]
    fn what_takes_two_keys_at_once_is_not_done() {
        for text in [
            "RENAME s:a s:b",
            "COPY s:a s:b",
            "MSETNX s:a 1 s:b 2",
            "FLUSHALL",
            "PING",
        ] {
            assert_eq!(asked(text), Ok(None), "{text}");
        }
    }
}
