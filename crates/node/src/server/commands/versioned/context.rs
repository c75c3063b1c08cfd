//! Causal contexts as clients see them: opaque text, hexadecimal digits, so that it goes through clients that
//! take all replies for text, and through a terminal.

use bytes::Bytes;
use fondaco_model::versioned::VectorClock;

use super::super::Refusal;

/// The context as a client is told it.
pub(super) fn write(context: &VectorClock) -> Bytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = context.to_bytes();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)]).collect()
}

/// The context that a client gives back; none at all is an empty one.
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
    context.ok_or_else(|| "ERR invalid context: use what FONDACO.GET or FONDACO.PUT answered, or nothing".into())
}

#[cfg(test)]
mod tests {
    use fondaco_model::NodeId;
    use fondaco_model::versioned::{Dot, ReplicaId};

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
}
