//! Causal contexts as clients see them: opaque text, hexadecimal digits, so that it goes through clients that
//! take all replies for text, and through a terminal.

use bytes::Bytes;
use fondaco_model::versioned::VectorClock;

use super::super::Refusal;
use fondaco_protocol::now_unix_ms;

/// The context as a client is told it.
pub(super) fn write(context: &VectorClock) -> Bytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = context.to_bytes();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)]).collect()
}

/// The context that a client gives back; none at all is an empty one. One that it can have made up only is none: it
/// would be newer than all that is written for years to come.
///
/// # Errors
/// The error to answer with.
pub(super) fn parse(text: &[u8]) -> Result<VectorClock, Refusal> {
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
            let text = write(&context);
            assert!(text.is_ascii());
            assert_eq!(parse(&text), Ok(context.clone()));
        }
        assert_eq!(parse(&write(&VectorClock::new())), Ok(VectorClock::new()));
        assert_eq!(parse(b""), Ok(VectorClock::new()));
    }

    #[test]
    fn what_was_never_told_is_no_context() {
        for text in ["x", "0", "no context", "ffffffffffffffffffff", "é0"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
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
        let refusal = parse(&write(&context)).unwrap_err();
        assert!(refusal.starts_with("ERR invalid context"), "{refusal}");
    }
}
