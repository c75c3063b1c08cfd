//! Commands of clients that resolve conflicts themselves: `FONDACO.GET` gives all values of a key, with their causal context;
//! `FONDACO.PUT` and `FONDACO.DEL` replace those that a context covers.
//!
//! Clients see a context as opaque text, hexadecimal digits, so that it goes through clients that take all replies for text,
//! and through a terminal.

use bytes::Bytes;
use fondaco_catalog::VersionedStore;
use fondaco_model::versioned::{Record, Resolution, VectorClock, resolve};
use fondaco_protocol::now_unix_ms;
use fondaco_resp::command::CommandId;

use super::expiry::{Count, Lifetime, Unit, until};
use super::operation::{Answer, Asked, Operation, Parser, Request};
use super::{Refusal, SYNTAX_ERROR};
use crate::single_value::value_of;

/// An operation on all values of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Siblings {
    /// `FONDACO.GET`
    Get,
    /// `FONDACO.PUT`: writes a value in place of those that the context covers.
    Put {
        context: Bytes,
        value: Bytes,
        lifetime: Lifetime,
    },
    /// `FONDACO.DEL`: deletes the values that the context covers.
    Delete { context: Bytes },
}

/// How a command of this family is read.
#[inline]
pub(super) fn parser(command: CommandId) -> Option<Parser> {
    use CommandId as Id;
    let parser: Parser = match command {
        Id::FondacoGet => |request| Ok(one(request, Siblings::Get)),
        Id::FondacoPut => put,
        Id::FondacoDel => |request| {
            let context = request.part(2);
            Ok(one(request, Siblings::Delete { context }))
        },
        _ => return None,
    };
    Some(parser)
}

fn one(request: &Request<'_>, operation: Siblings) -> Asked {
    Asked::one(request, Operation::Siblings(operation))
}

fn put(request: &Request<'_>) -> Result<Asked, Refusal> {
    let lifetime = match request.len() {
        4 => Lifetime::Default,
        6 if request.is(4, "PX") => until(request, 5, Unit::Milliseconds, Count::FromNow)?,
        _ => return Err(SYNTAX_ERROR.into()),
    };
    let put = Siblings::Put {
        context: request.part(2),
        value: request.part(3),
        lifetime,
    };
    Ok(one(request, put))
}

/// The answer of `FONDACO.GET` for a record.
///
/// # Errors
/// The error to answer with.
pub(in crate::server) fn answer_siblings(record: &Record, store: &VersionedStore) -> Result<Answer, Refusal> {
    let now_unix_ms = now_unix_ms();
    let values = match store.settings.resolution {
        // The siblings of a counter are partial sums.
        Resolution::Counter => value_of(record, store, now_unix_ms)?
            .map(|current| current.value)
            .into_iter()
            .collect(),
        _ => resolve(record, Resolution::All, now_unix_ms).values.into_vec(),
    };
    Ok(Answer::Siblings(write_context(record.context()), values))
}

/// The context as it is sent to a client.
pub(in crate::server) fn write_context(context: &VectorClock) -> Bytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = context.to_bytes();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)]).collect()
}

/// The context that a client gives back. An empty text is an empty context. A context with times that lie years ahead is
/// refused: the client can only have made it up, and it would be newer than all later writes.
///
/// # Errors
/// The error to answer with.
pub(in crate::server) fn parse_context(text: &[u8]) -> Result<VectorClock, Refusal> {
    if text.is_empty() {
        return Ok(VectorClock::default());
    }
    let digit = |text: &u8| (*text as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let context = bytes
        .filter(|_| rest.is_empty())
        .and_then(|bytes| VectorClock::decode(&bytes).ok());
    let unknown = || Refusal::from("ERR invalid context: use what FONDACO.GET or FONDACO.PUT answered, or nothing");
    let context = context.ok_or_else(unknown)?;
    let checked = context.check_given(now_unix_ms());
    checked.map_err(|error| Refusal::from(format!("ERR invalid context: {error}")))?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use fondaco_model::NodeId;
    use fondaco_model::versioned::{Dot, ReplicaId, TIME_UNIX_MS_MAX};

    use super::super::operation::tests::asked;
    use super::*;

    #[test]
    fn a_context_is_given_back_as_it_was_told() {
        let mut context = VectorClock::new();
        for number in 1..5 {
            let replica = ReplicaId {
                node: NodeId::new(number).unwrap(),
                incarnation: 7,
            };
            context.increment(Dot { replica, counter: 300 }, 1_700_000_000_000);
            let text = write_context(&context);
            assert!(text.is_ascii());
            assert_eq!(parse_context(&text), Ok(context.clone()));
        }
        assert_eq!(
            parse_context(&write_context(&VectorClock::new())),
            Ok(VectorClock::new())
        );
        assert_eq!(parse_context(b""), Ok(VectorClock::new()));
    }

    #[test]
    fn what_was_never_told_is_no_context() {
        for text in ["x", "0", "no context", "ffffffffffffffffffff", "é0"] {
            assert!(parse_context(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_context_of_the_far_future_is_refused() {
        let mut context = VectorClock::new();
        let replica = ReplicaId {
            node: NodeId::FIRST,
            incarnation: 7,
        };
        context.increment(Dot { replica, counter: 300 }, TIME_UNIX_MS_MAX);
        let refusal = parse_context(&write_context(&context)).unwrap_err();
        assert!(refusal.starts_with("ERR invalid context"), "{refusal}");
    }

    #[test]
    fn put_takes_a_lifetime_in_milliseconds_alone() {
        for text in ["FONDACO.PUT s:k c v PX", "FONDACO.PUT s:k c v EX 5"] {
            assert_eq!(asked(text), Err(SYNTAX_ERROR.into()), "{text}");
        }
    }
}
