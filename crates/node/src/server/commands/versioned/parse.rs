//! Requests on versioned stores, as Redis reads their arguments: which keys they have, and what they ask of
//! each.
//!
//! Options are read in the order in which they stand, and errors are found in the order in which Redis 7.0
//! finds them. Times are counted from now.

use bytes::Bytes;
use fondaco_resp::command::CommandId;
use fondaco_resp::{Arguments, parse_integer};

use super::super::{NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use super::operation::{Condition, Expire, ExpireOnly, Lifetime, Operation, Set, SetReply, Than, Unit};

/// A request on keys of versioned stores.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct Asked {
    /// The wire keys, and what is asked of each.
    pub(in crate::server) keys: Vec<(Bytes, Operation)>,
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
    fn len(&self) -> usize {
        self.arguments.len()
    }

    fn get(&self, at: usize) -> &[u8] {
        self.arguments.get(at, &self.bytes).unwrap_or_default()
    }

    /// An argument, without copying it.
    fn part(&self, at: usize) -> Bytes {
        self.bytes.slice_ref(self.get(at))
    }

    fn integer(&self, at: usize) -> Result<i64, Refusal> {
        parse_integer(self.get(at)).ok_or_else(|| NOT_AN_INTEGER.into())
    }

    fn is(&self, at: usize, word: &str) -> bool {
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
        keys: vec![(request.part(1), operation)],
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
        Id::Exists => every(Operation::Exists),
        Id::Ttl => one(Operation::TimeLeft(Unit::Seconds)),
        Id::PTtl => one(Operation::TimeLeft(Unit::Milliseconds)),
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

/// Where a time is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    FromNow,
    FromEpoch,
}

/// The time, and which command it is read for.
#[derive(Clone, Copy)]
struct Clock {
    command: CommandId,
    now_unix_ms: u64,
}

/// An option that says until when a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndOption {
    Keep,
    Persist,
    Time(Unit, Count),
}

impl EndOption {
    fn of(word: &[u8], command: CommandId) -> Option<Self> {
        let option = match word.to_ascii_uppercase().as_slice() {
            b"KEEPTTL" if command == CommandId::Set => Self::Keep,
            b"PERSIST" if command == CommandId::GetEx => Self::Persist,
            b"EX" => Self::Time(Unit::Seconds, Count::FromNow),
            b"PX" => Self::Time(Unit::Milliseconds, Count::FromNow),
            b"EXAT" => Self::Time(Unit::Seconds, Count::FromEpoch),
            b"PXAT" => Self::Time(Unit::Milliseconds, Count::FromEpoch),
            _ => return None,
        };
        Some(option)
    }
}

/// What the options of `SET` and `GETEX` say.
#[derive(Default)]
struct Options {
    condition: Option<Condition>,
    former_wanted: bool,
    end: Option<EndOption>,
    /// The argument with the time.
    time_at: usize,
}

impl Clock {
    /// Reads the options of `SET` and `GETEX` from this argument on. The same option may stand twice, and
    /// the last one counts; two different ones of a kind may not.
    fn options(self, request: &Request<'_>, first: usize) -> Result<Options, Refusal> {
        let is_set = self.command == CommandId::Set;
        let mut options = Options::default();
        let mut at = first;
        while at < request.len() {
            let condition = match () {
                () if is_set && request.is(at, "NX") => Some(Condition::IfAbsent),
                () if is_set && request.is(at, "XX") => Some(Condition::IfPresent),
                () => None,
            };
            let end = EndOption::of(request.get(at), self.command);
            match (condition, end) {
                (Some(condition), _) if options.condition.is_none_or(|other| other == condition) => {
                    options.condition = Some(condition);
                }
                (None, Some(end)) if options.end.is_none_or(|other| other == end) => {
                    options.end = Some(end);
                    if let EndOption::Time(..) = end {
                        at += 1;
                        options.time_at = at;
                    }
                }
                (None, None) if is_set && request.is(at, "GET") => options.former_wanted = true,
                _ => return Err(SYNTAX_ERROR.into()),
            }
            at += 1;
        }
        match at > request.len() {
            true => Err(SYNTAX_ERROR.into()),
            false => Ok(options),
        }
    }

    fn set(self, request: &Request<'_>) -> Result<Set, Refusal> {
        let options = self.options(request, 3)?;
        let lifetime = match options.end {
            None | Some(EndOption::Persist) => Lifetime::Default,
            Some(EndOption::Keep) => Lifetime::Kept,
            Some(EndOption::Time(unit, count)) => self.until(request.get(options.time_at), unit, count)?,
        };
        Ok(Set {
            value: request.part(2),
            condition: options.condition.unwrap_or(Condition::Always),
            lifetime,
            reply: if options.former_wanted {
                SetReply::Former
            } else {
                SetReply::Ok
            },
        })
    }

    fn get_expire(self, request: &Request<'_>) -> Result<Option<Result<Lifetime, Refusal>>, Refusal> {
        let options = self.options(request, 2)?;
        Ok(match options.end {
            None | Some(EndOption::Keep) => None,
            Some(EndOption::Persist) => Some(Ok(Lifetime::Endless)),
            Some(EndOption::Time(unit, count)) => Some(self.until(request.get(options.time_at), unit, count)),
        })
    }

    /// A life until a time, which is after the epoch and, where it is counted from now, after now.
    fn until(self, text: &[u8], unit: Unit, count: Count) -> Result<Lifetime, Refusal> {
        let number = parse_integer(text).ok_or(NOT_AN_INTEGER)?;
        let unix_ms = match number {
            1.. => self.moment(number, unit, count),
            _ => None,
        };
        match unix_ms {
            Some(unix_ms) => Ok(Lifetime::Until { unix_ms }),
            None => Err(self.invalid_time()),
        }
    }

    /// The moment that a number stands for, if that can be told in 64 bits.
    fn moment(self, number: i64, unit: Unit, count: Count) -> Option<i64> {
        let ms = match unit {
            Unit::Milliseconds => number,
            Unit::Seconds => number.checked_mul(1000)?,
        };
        match count {
            Count::FromEpoch => Some(ms),
            Count::FromNow => ms.checked_add(i64::try_from(self.now_unix_ms).ok()?),
        }
    }

    fn expire(self, request: &Request<'_>, unit: Unit, count: Count) -> Result<Operation, Refusal> {
        let only = expire_only(request)?;
        let number = request.integer(2)?;
        let unix_ms = self.moment(number, unit, count).ok_or_else(|| self.invalid_time())?;
        Ok(Operation::Expire(Expire { unix_ms, only }))
    }

    fn invalid_time(self) -> Refusal {
        let name = match self.command {
            CommandId::Set => "set",
            CommandId::SetEx => "setex",
            CommandId::PSetEx => "psetex",
            CommandId::GetEx => "getex",
            CommandId::Expire => "expire",
            CommandId::PExpire => "pexpire",
            CommandId::ExpireAt => "expireat",
            CommandId::PExpireAt => "pexpireat",
            _ => "fondaco.put",
        };
        format!("ERR invalid expire time in '{name}' command")
    }
}

fn expire_only(request: &Request<'_>) -> Result<ExpireOnly, Refusal> {
    let (mut nx, mut xx, mut later, mut earlier) = (false, false, false, false);
    for at in 3..request.len() {
        match request.get(at).to_ascii_uppercase().as_slice() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => later = true,
            b"LT" => earlier = true,
            _ => {
                let option = String::from_utf8_lossy(request.get(at)).into_owned();
                return Err(format!("ERR Unsupported option {option}"));
            }
        }
    }
    if nx && (xx || later || earlier) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    let than = match (later, earlier) {
        (true, true) => return Err("ERR GT and LT options at the same time are not compatible".into()),
        (true, false) => Some(Than::Later),
        (false, true) => Some(Than::Earlier),
        (false, false) => None,
    };
    Ok(match (nx, xx, than) {
        (true, ..) => ExpireOnly::IfEndless,
        (false, true, than) => ExpireOnly::IfEnding(than),
        (false, false, Some(than)) => ExpireOnly::If(than),
        (false, false, None) => ExpireOnly::Always,
    })
}

#[cfg(test)]
mod tests {
    use fondaco_resp::command::resolve;
    use fondaco_resp::{Limits, Parse, parse_request};

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
