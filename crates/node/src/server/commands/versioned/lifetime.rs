//! The options that say until when a value lives, and the times in them, as `SET`, `GETEX`, `EXPIRE` and their
//! kin take them.
//!
//! Options are read in the order in which they stand, and errors are found in the order in which Redis 7.0 finds
//! them. Times are counted from now.

use fondaco_resp::command::CommandId;
use fondaco_resp::parse_integer;

use super::super::{NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use super::operation::{Condition, Expire, ExpireOnly, Lifetime, Operation, Set, SetReply, Than, Unit};
use super::parse::Request;

/// Where a time is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    FromNow,
    FromEpoch,
}

/// The time, and which command it is read for.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) command: CommandId,
    pub(super) now_unix_ms: u64,
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

    pub(super) fn set(self, request: &Request<'_>) -> Result<Set, Refusal> {
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

    pub(super) fn get_expire(self, request: &Request<'_>) -> Result<Option<Result<Lifetime, Refusal>>, Refusal> {
        let options = self.options(request, 2)?;
        Ok(match options.end {
            None | Some(EndOption::Keep) => None,
            Some(EndOption::Persist) => Some(Ok(Lifetime::Endless)),
            Some(EndOption::Time(unit, count)) => Some(self.until(request.get(options.time_at), unit, count)),
        })
    }

    /// A life until a time, which is after the epoch and, where it is counted from now, after now.
    pub(super) fn until(self, text: &[u8], unit: Unit, count: Count) -> Result<Lifetime, Refusal> {
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

    pub(super) fn expire(self, request: &Request<'_>, unit: Unit, count: Count) -> Result<Operation, Refusal> {
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
