//! When values expire: `EXPIRE` and its kin, `PERSIST` and `GETEX`; and the options and times of other commands.

use fondaco_resp::command::{CommandId, quoted};
use fondaco_resp::parse_integer;

use super::look_ups::LookUp;
use super::operation::{Answer, Asked, Change, Circumstances, Operation, Parser, Request};
use super::{NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use crate::single_value::Current;

/// An operation on the expiry of one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Lifetimes {
    /// `EXPIRE` and its kin.
    Expire(Expire),
    /// `PERSIST`
    Persist,
    /// `GETEX` with an option. The time is checked where there is a value, as in Redis.
    GetExpire(Result<Lifetime, Refusal>),
}

/// Until when a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Lifetime {
    /// As long as the store's settings say.
    Default,
    /// As long as the value before it.
    Kept,
    /// For ever.
    Endless,
    /// Until this moment.
    Until { unix_ms: i64 },
}

/// When a value is to expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) struct Expire {
    unix_ms: i64,
    only: ExpireOnly,
}

/// The values that are given the new expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpireOnly {
    Always,
    /// `NX`
    IfEndless,
    /// `XX`, with `GT` or `LT` or neither.
    IfEnding(Option<Than>),
    /// `GT` or `LT` alone.
    If(Than),
}

/// Whether the new expiry is later or earlier than the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Than {
    Later,
    Earlier,
}

/// A unit of time that clients count in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    /// Milliseconds in this unit, rounded.
    pub(super) fn rounded(self, ms: u64) -> i64 {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        match self {
            Self::Milliseconds => ms,
            Self::Seconds => ms.saturating_add(500) / 1000,
        }
    }
}

/// Where a time is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    FromNow,
    FromEpoch,
}

/// How a command of this family is read.
#[inline]
pub(super) fn parser(command: CommandId) -> Option<Parser> {
    use CommandId as Id;
    let parser: Parser = match command {
        Id::Expire => |request| expire(request, Unit::Seconds, Count::FromNow),
        Id::PExpire => |request| expire(request, Unit::Milliseconds, Count::FromNow),
        Id::ExpireAt => |request| expire(request, Unit::Seconds, Count::FromEpoch),
        Id::PExpireAt => |request| expire(request, Unit::Milliseconds, Count::FromEpoch),
        Id::Persist => |request| Ok(Asked::one(request, Operation::Lifetimes(Lifetimes::Persist))),
        Id::GetEx => get_expire,
        _ => return None,
    };
    Some(parser)
}

fn expire(request: &Request<'_>, unit: Unit, count: Count) -> Result<Asked, Refusal> {
    let only = expire_only(request)?;
    let number = request.integer(2)?;
    let unix_ms = moment(request, number, unit, count).ok_or_else(|| invalid_time(request))?;
    let expire = Lifetimes::Expire(Expire { unix_ms, only });
    Ok(Asked::one(request, Operation::Lifetimes(expire)))
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
                let option = quoted(request.get(at), usize::MAX);
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

/// `GETEX`, which without an option is a look-up.
fn get_expire(request: &Request<'_>) -> Result<Asked, Refusal> {
    let mut options = ExpiryOptions::default();
    let mut at = 2;
    while at < request.len() {
        at = options.take(request, at, Word::Persist)?;
    }
    let operation = match options.lifetime(request) {
        None => Operation::LookUp(LookUp::Value),
        Some(lifetime) => Operation::Lifetimes(Lifetimes::GetExpire(lifetime)),
    };
    Ok(Asked::one(request, operation))
}

/// The options of `SET` and `GETEX` that say when the value expires.
#[derive(Default)]
pub(super) struct ExpiryOptions {
    known: Option<ExpiryOption>,
    /// The argument with the time.
    time_at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpiryOption {
    Word(Word),
    Time(Unit, Count),
}

/// An option without a time, which one command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Of `SET`.
    KeepTtl,
    /// Of `GETEX`.
    Persist,
}

impl ExpiryOptions {
    /// Reads the option at an argument, which may be `word`, or one with a time; the next argument. The same option may stand
    /// twice, and the last one counts.
    pub(super) fn take(&mut self, request: &Request<'_>, at: usize, word: Word) -> Result<usize, Refusal> {
        let option = match request.get(at).to_ascii_uppercase().as_slice() {
            b"KEEPTTL" if word == Word::KeepTtl => ExpiryOption::Word(word),
            b"PERSIST" if word == Word::Persist => ExpiryOption::Word(word),
            b"EX" => ExpiryOption::Time(Unit::Seconds, Count::FromNow),
            b"PX" => ExpiryOption::Time(Unit::Milliseconds, Count::FromNow),
            b"EXAT" => ExpiryOption::Time(Unit::Seconds, Count::FromEpoch),
            b"PXAT" => ExpiryOption::Time(Unit::Milliseconds, Count::FromEpoch),
            _ => return Err(SYNTAX_ERROR.into()),
        };
        if self.known.is_some_and(|known| known != option) {
            return Err(SYNTAX_ERROR.into());
        }
        self.known = Some(option);
        match option {
            ExpiryOption::Word(_) => Ok(at + 1),
            ExpiryOption::Time(..) if at + 1 == request.len() => Err(SYNTAX_ERROR.into()),
            ExpiryOption::Time(..) => {
                self.time_at = at + 1;
                Ok(at + 2)
            }
        }
    }

    /// The lifetime that was read, or the error of an invalid time; `None` without an option.
    pub(super) fn lifetime(&self, request: &Request<'_>) -> Option<Result<Lifetime, Refusal>> {
        Some(match self.known? {
            ExpiryOption::Word(Word::KeepTtl) => Ok(Lifetime::Kept),
            ExpiryOption::Word(Word::Persist) => Ok(Lifetime::Endless),
            ExpiryOption::Time(unit, count) => until(request, self.time_at, unit, count),
        })
    }
}

/// A lifetime until the time in an argument, which is after 1970 and, where it is counted from now, after now.
pub(super) fn until(request: &Request<'_>, at: usize, unit: Unit, count: Count) -> Result<Lifetime, Refusal> {
    let unix_ms = match parse_integer(request.get(at)).ok_or(NOT_AN_INTEGER)? {
        number @ 1.. => moment(request, number, unit, count),
        _ => None,
    };
    match unix_ms {
        Some(unix_ms) => Ok(Lifetime::Until { unix_ms }),
        None => Err(invalid_time(request)),
    }
}

/// The moment that a number stands for, in milliseconds since 1970, if it fits in 64 bits.
fn moment(request: &Request<'_>, number: i64, unit: Unit, count: Count) -> Option<i64> {
    let ms = match unit {
        Unit::Milliseconds => number,
        Unit::Seconds => number.checked_mul(1000)?,
    };
    match count {
        Count::FromEpoch => Some(ms),
        Count::FromNow => ms.checked_add(i64::try_from(request.now_unix_ms).ok()?),
    }
}

fn invalid_time(request: &Request<'_>) -> Refusal {
    format!("ERR invalid expire time in '{}' command", request.spec.name)
}

impl Lifetimes {
    pub(super) fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        match (self, current) {
            (Self::GetExpire(_), None) => (Change::None, Answer::Null),
            (Self::Expire(_) | Self::Persist, None) => (Change::None, Answer::Integer(0)),
            (Self::GetExpire(lifetime), Some(current)) => get_and_expire(lifetime, current, here),
            (Self::Expire(expire), Some(current)) => expire.apply(current, here),
            (Self::Persist, Some(current)) => match endless(current) {
                Change::None => (Change::None, Answer::Integer(0)),
                change => (change, Answer::Integer(1)),
            },
        }
    }
}

impl Expire {
    fn apply(&self, current: &Current, here: &Circumstances) -> (Change, Answer) {
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
        (expiring(self.unix_ms, current, here), Answer::Integer(1))
    }
}

/// The value with this expiry, which may have passed.
fn expiring(unix_ms: i64, current: &Current, here: &Circumstances) -> Change {
    match u64::try_from(unix_ms) {
        Ok(unix_ms) if unix_ms > here.now_unix_ms => Change::Write(Current {
            value: current.value.clone(),
            expires_unix_ms: Some(unix_ms),
        }),
        _ => Change::Delete,
    }
}

/// The value without an expiry.
fn endless(current: &Current) -> Change {
    match current.expires_unix_ms {
        None => Change::None,
        Some(_) => Change::Write(Current {
            value: current.value.clone(),
            expires_unix_ms: None,
        }),
    }
}

fn get_and_expire(lifetime: &Result<Lifetime, Refusal>, current: &Current, here: &Circumstances) -> (Change, Answer) {
    let change = match lifetime {
        Err(error) => return (Change::None, Answer::Error(error.clone())),
        Ok(Lifetime::Until { unix_ms }) => expiring(*unix_ms, current, here),
        Ok(Lifetime::Endless) => endless(current),
        Ok(Lifetime::Default | Lifetime::Kept) => Change::None,
    };
    (change, Answer::Bulk(current.value.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::operation::tests::{HERE, asked, expiring, operation, value};
    use super::*;

    #[test]
    fn options_that_exclude_one_another_are_a_syntax_error() {
        for text in [
            "GETEX s:k PERSIST EX 5",
            "GETEX s:k KEEPTTL",
            "GETEX s:k NX",
            "GETEX s:k PX",
        ] {
            assert_eq!(asked(text), Err(SYNTAX_ERROR.into()), "{text}");
        }
    }

    #[test]
    fn times_out_of_range_are_refused_in_the_words_of_redis() {
        let invalid = |command: &str| format!("ERR invalid expire time in '{command}' command");
        for (text, error) in [
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
        ] {
            assert_eq!(asked(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_time_of_getex_is_checked_where_there_is_a_value() {
        let operation = operation("GETEX s:k EX 0").unwrap();
        assert_eq!(operation.apply(None, &HERE), (Change::None, Answer::Null));
        let error = "ERR invalid expire time in 'getex' command";
        let refused = (Change::None, Answer::Error(error.into()));
        assert_eq!(operation.apply(Some(&value("v")), &HERE), refused);
    }

    #[test]
    fn getex_without_options_is_a_look_up() {
        assert_eq!(operation("GETEX s:k").unwrap(), Operation::LookUp(LookUp::Value));
    }

    #[test]
    fn expire_takes_a_time_in_the_past() {
        let expire = Lifetimes::Expire(Expire {
            unix_ms: -4_000,
            only: ExpireOnly::Always,
        });
        assert_eq!(operation("EXPIRE s:k -5").unwrap(), Operation::Lifetimes(expire));
    }

    #[test]
    fn an_expiry_in_the_past_deletes() {
        let expire = |unix_ms, only| Lifetimes::Expire(Expire { unix_ms, only });
        let current = expiring("x", 1_500_000);
        for unix_ms in [-5, 0, 1_000_000] {
            let (change, answer) = expire(unix_ms, ExpireOnly::Always).apply(Some(&current), &HERE);
            assert_eq!((change, answer), (Change::Delete, Answer::Integer(1)));
        }
        let (change, _) = expire(1_000_001, ExpireOnly::Always).apply(Some(&current), &HERE);
        assert_eq!(change, Change::Write(expiring("x", 1_000_001)));
        let (change, answer) = expire(5, ExpireOnly::Always).apply(None, &HERE);
        assert_eq!((change, answer), (Change::None, Answer::Integer(0)));
    }

    #[test]
    fn a_value_without_an_expiry_ends_later_than_any_other() {
        let done = |only, current: &Current| {
            let unix_ms = 2_000_000;
            Expire { unix_ms, only }.apply(current, &HERE).1 == Answer::Integer(1)
        };
        let (endless, soon, late) = (value("x"), expiring("x", 1_500_000), expiring("x", 3_000_000));
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
}
