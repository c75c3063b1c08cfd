//! The context of a trace, as W3C Trace Context has it: which trace a request belongs to, and which span caused it.
//!
//! Only requests that are sampled have one: all others carry nothing.

use std::fmt;

use thiserror::Error;

/// The length of a context in an envelope: 32 hexadecimal digits, a hyphen, and 16 more.
pub(crate) const TEXT_BYTES: usize = 49;

/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

/// The trace that a sampled request belongs to, and the span that caused it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace; never 0.
    pub trace: u128,
    /// The id of the span; never 0.
    pub span: u64,
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "invalid traceparent {got:?}: use version-trace-span-flags as W3C Trace Context has it, such as \
     00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct InvalidTraceparent {
    /// Its first bytes.
    got: Box<str>,
}

impl TraceContext {
    /// A new trace, whose first span has this context.
    pub fn new_trace() -> Self {
        Self {
            trace: fastrand::u128(1..),
            span: fastrand::u64(1..),
        }
    }

    /// A new span of the same trace.
    pub fn new_span(self) -> Self {
        Self {
            trace: self.trace,
            span: fastrand::u64(1..),
        }
    }

    /// Parses a `traceparent`: `None` if its sender does not sample the request.
    ///
    /// # Errors
    /// [`InvalidTraceparent`]. One of a later version is read as far as version 00 has it, as the standard wants.
    pub fn parse_traceparent(text: &[u8]) -> Result<Option<Self>, InvalidTraceparent> {
        let parsed = || {
            let (version, rest) = (hex_number(text.get(..2)?)?, text.get(2..)?);
            let is_long_enough = match version {
                0 => text.len() == PARENT_BYTES,
                0xff => false,
                _ => text.len() == PARENT_BYTES || text.get(PARENT_BYTES) == Some(&b'-'),
            };
            let (context, flags) = (rest.get(1..=TEXT_BYTES)?, rest.get(TEXT_BYTES + 1..TEXT_BYTES + 4)?);
            if !is_long_enough || rest[0] != b'-' || flags[0] != b'-' {
                return None;
            }
            let flags = hex_number(&flags[1..])?;
            Some((flags & 1 == 1).then_some(Self::parse(context)?))
        };
        parsed().ok_or_else(|| InvalidTraceparent {
            got: text[..text.len().min(80)].escape_ascii().to_string().into(),
        })
    }

    /// Parses what [`Display`](fmt::Display) writes.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != TEXT_BYTES || text[32] != b'-' {
            return None;
        }
        let (trace, span) = (hex_number(&text[..32])?, hex_number(&text[33..])?);
        (trace != 0 && span != 0).then_some(Self {
            trace,
            span: span as u64,
        })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:016x}", self.trace, self.span)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number that at most 32 lower-case hexadecimal digits stand for.
fn hex_number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_standard_is_read() {
        let context = TraceContext::parse_traceparent(EXAMPLE.as_bytes()).unwrap().unwrap();
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span, 0x00f0_67aa_0ba9_02b7);
        let unsampled = EXAMPLE.replace("-01", "-00");
        assert_eq!(TraceContext::parse_traceparent(unsampled.as_bytes()), Ok(None));
        let later = EXAMPLE.replace("00-4b", "cc-4b") + "-what-comes";
        assert_eq!(TraceContext::parse_traceparent(later.as_bytes()), Ok(Some(context)));
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in [
            "",
            "00",
            "hello",
            &EXAMPLE.to_uppercase(),
            &EXAMPLE.replace('-', "_"),
            &format!("{EXAMPLE}-more"),
            &EXAMPLE.replace("00-4b", "ff-4b"),
            &EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &EXAMPLE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &EXAMPLE.replace("-01", "-0g"),
        ] {
            let error = TraceContext::parse_traceparent(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("invalid traceparent"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(text in prop::collection::vec(any::<u8>(), 0..70)) {
            let _ = TraceContext::parse_traceparent(&text);
            let _ = TraceContext::parse(&text);
        }

        #[test]
        fn a_written_context_is_parsed_again(trace in 1_u128.., span in 1_u64..) {
            let context = TraceContext { trace, span };
            prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
        }
    }
}
