//! The operation of a request on each of its keys, and the answer for a key: the vocabulary of all families of commands on
//! keys.
//!
//! A family is a file: [`look_ups`](super::look_ups), [`strings`], [`expiry`], [`siblings`], [`updates`]. It reads the arguments of its
//! commands, says what they make of a value, and what they are answered with. How values are read and written on replicas
//! is the coordinator's business.
//!
//! Errors are found in the order in which Redis 7.0 finds them, and are in its words.

use bytes::Bytes;
use fondaco_client::quorum::AddedMeanwhile;
use fondaco_resp::command::{CommandId, CommandSpec};
use fondaco_resp::{Arguments, Reply, parse_integer};
use smallvec::{SmallVec, smallvec};

use super::expiry::{self, Lifetime, Lifetimes};
use super::look_ups::LookUp;
use super::siblings::{self, Siblings};
use super::strings::{self, Set, Strings};
use super::updates::{self, FieldUpdate};
use super::{NOT_AN_INTEGER, Refusal};
use crate::single_value::Current;

/// An operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Operation {
    LookUp(LookUp),
    Strings(Strings),
    Lifetimes(Lifetimes),
    Siblings(Siblings),
    Update(FieldUpdate),
}

/// A request on keys of versioned stores.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct Asked {
    /// The wire keys, each with its operation.
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
    /// An array of all answers.
    Array,
}

/// One request: its bytes, and where its arguments are in them.
pub(in crate::server) struct Request<'a> {
    pub(in crate::server) spec: &'static CommandSpec,
    pub(in crate::server) bytes: Bytes,
    pub(in crate::server) arguments: &'a Arguments,
    /// The time that lifetimes are counted from.
    pub(in crate::server) now_unix_ms: u64,
}

/// Reads a request on keys of versioned stores.
pub(in crate::server) type Parser = fn(&Request<'_>) -> Result<Asked, Refusal>;

/// How a command is read that versioned stores carry out key by key; `None` for all other commands, and for look-ups.
#[inline]
pub(in crate::server) fn parser(command: CommandId) -> Option<Parser> {
    strings::parser(command)
        .or_else(|| expiry::parser(command))
        .or_else(|| siblings::parser(command))
        .or_else(|| updates::parser(command))
}

impl Asked {
    /// Asks something of the first argument.
    pub(super) fn one(request: &Request<'_>, operation: Operation) -> Self {
        Self {
            keys: smallvec![(request.part(1), operation)],
            reply: Combined::Only,
        }
    }

    /// Asks the same of all arguments.
    pub(super) fn every(request: &Request<'_>, operation: &Operation) -> Self {
        Self {
            keys: (1..request.len())
                .map(|at| (request.part(at), operation.clone()))
                .collect(),
            reply: Combined::Sum,
        }
    }
}

impl Request<'_> {
    pub(super) fn len(&self) -> usize {
        self.arguments.len()
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        self.arguments.get(at, &self.bytes).unwrap_or_default()
    }

    /// An argument, without copying it if it lies in the bytes.
    pub(in crate::server) fn part(&self, at: usize) -> Bytes {
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

impl Operation {
    /// Whether it changes nothing.
    pub(in crate::server) fn is_read(&self) -> bool {
        matches!(self, Self::LookUp(_) | Self::Siblings(Siblings::Get))
    }

    /// Whether it only looks the value up.
    pub(in crate::server) fn is_look_up(&self) -> bool {
        matches!(self, Self::LookUp(_))
    }

    /// The fate of a number that another client adds to a counter meanwhile.
    pub(in crate::server) fn added_meanwhile(&self) -> AddedMeanwhile {
        match self {
            Self::Lifetimes(_) => AddedMeanwhile::Stays,
            Self::Strings(strings) => strings.added_meanwhile(),
            Self::LookUp(_) | Self::Siblings(_) | Self::Update(_) => AddedMeanwhile::Conflicts,
        }
    }

    /// The value to be written, if the operation writes it whatever the key has now.
    pub(in crate::server) fn unconditional(&self) -> Option<&Set> {
        match self {
            Self::Strings(Strings::Set(set)) if set.is_unconditional() => Some(set),
            _ => None,
        }
    }

    /// The fields that it writes, if it leaves the others as they are; `None` if it writes the whole value.
    pub(in crate::server) fn fields(&self) -> Option<Box<[Box<str>]>> {
        match self {
            Self::Update(update) => Some(update.fields()),
            Self::Lifetimes(_) => Some(Box::default()),
            Self::LookUp(_) | Self::Strings(_) | Self::Siblings(_) => None,
        }
    }

    /// Applies it to the value that the key has, if it has one. A pure function: when others write meanwhile, it is applied
    /// again, and the last answer counts.
    pub(in crate::server) fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        match self {
            Self::LookUp(look_up) => (Change::None, look_up.answer_current(current, here.now_unix_ms)),
            Self::Strings(strings) => strings.apply(current, here),
            Self::Lifetimes(lifetimes) => lifetimes.apply(current, here),
            Self::Update(update) => update.apply(current, here),
            // These need the whole record.
            Self::Siblings(_) => (Change::None, Answer::Null),
        }
    }
}

/// The change that an operation makes to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Change {
    /// The value stays.
    None,
    Write(Current),
    Delete,
}

/// The conditions under which operations are carried out.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Circumstances {
    pub(in crate::server) now_unix_ms: u64,
    /// How long values live unless a request says otherwise.
    pub(in crate::server) ttl_ms: Option<u64>,
    /// The longest value, in bytes.
    pub(in crate::server) value_bytes_max: usize,
}

impl Circumstances {
    /// When a value that is written now expires.
    pub(in crate::server) fn expiry_of(&self, lifetime: Lifetime, former: Option<&Current>) -> Option<u64> {
        match lifetime {
            Lifetime::Default => self.ttl_ms.map(|ttl_ms| self.now_unix_ms.saturating_add(ttl_ms)),
            Lifetime::Kept => match former {
                Some(former) => former.expires_unix_ms,
                None => self.expiry_of(Lifetime::Default, None),
            },
            Lifetime::Endless => None,
            Lifetime::Until { unix_ms } => Some(u64::try_from(unix_ms).unwrap_or(0)),
        }
    }
}

/// The answer for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Answer {
    Ok,
    Null,
    Integer(i64),
    Bulk(Bytes),
    Simple(&'static str),
    /// The causal context, and the values.
    Siblings(Bytes, Vec<Bytes>),
    Error(String),
}

impl Answer {
    /// How long the values in it are.
    pub(in crate::server) fn bytes(&self) -> usize {
        match self {
            Self::Bulk(value) => value.len(),
            Self::Siblings(context, values) => context.len() + values.iter().map(Bytes::len).sum::<usize>(),
            _ => 0,
        }
    }

    pub(in crate::server) fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Ok => reply.ok(),
            Self::Null => reply.null(),
            Self::Integer(number) => reply.integer(*number),
            Self::Bulk(value) => reply.bulk(value),
            Self::Simple(text) => reply.simple(text),
            Self::Siblings(context, values) => {
                reply.array(2);
                reply.bulk(context);
                reply.array(values.len());
                values.iter().for_each(|value| reply.bulk(value));
            }
            Self::Error(error) => reply.error(error),
        }
    }
}

pub(super) fn bulk_or_null(value: Option<&Bytes>) -> Answer {
    value.map_or(Answer::Null, |value| Answer::Bulk(value.clone()))
}

/// Helpers for the tests of families.
#[cfg(test)]
pub(super) mod tests {
    use fondaco_resp::command::resolve;
    use fondaco_resp::{Limits, Parse, parse_request};

    use super::*;

    pub(in crate::server::commands) const HERE: Circumstances = Circumstances {
        now_unix_ms: 1_000_000,
        ttl_ms: None,
        value_bytes_max: 16,
    };

    pub(in crate::server::commands) fn value(text: &'static str) -> Current {
        Current {
            value: Bytes::from_static(text.as_bytes()),
            expires_unix_ms: None,
        }
    }

    pub(in crate::server::commands) fn expiring(text: &'static str, expires_unix_ms: u64) -> Current {
        Current {
            expires_unix_ms: Some(expires_unix_ms),
            ..value(text)
        }
    }

    /// Parses a request, at one second after 1970; `None` if versioned stores do not carry it out key by key.
    pub(in crate::server::commands) fn asked(text: &str) -> Result<Option<Asked>, Refusal> {
        let line = format!("{text}\r\n");
        let mut arguments = Arguments::new();
        let parsed = parse_request(line.as_bytes(), &Limits::default(), &mut arguments);
        assert!(matches!(parsed, Ok(Parse::Complete { .. })), "{text}");
        let spec = resolve(&arguments, line.as_bytes())?;
        let request = Request {
            spec,
            bytes: Bytes::from(line),
            arguments: &arguments,
            now_unix_ms: 1_000,
        };
        parser(spec.id).map(|parse| parse(&request)).transpose()
    }

    pub(in crate::server::commands) fn operation(text: &str) -> Result<Operation, Refusal> {
        let mut asked = asked(text)?.unwrap();
        assert_eq!(asked.keys.len(), 1);
        Ok(asked.keys.remove(0).1)
    }

    #[test]
    fn commands_on_two_keys_at_once_are_not_carried_out() {
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
