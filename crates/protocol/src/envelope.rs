//! The first argument of messages between nodes: how a request has to be carried out, independent of its content.
//!
//! ```text
//! v1;timeout=250;epoch=12;charged;trace=4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7
//! ```
//!
//! A version, followed by fields in any order, each a name or a name with a value. Nodes of two releases talk to each
//! other during an upgrade of the cluster, so a node ignores fields that it does not know. A field that changes the
//! meaning of the request has a name that begins with `!`, and a node that does not know it refuses the request.
//!
//! The version is the [protocol](protocol) of the request. A node reads that of its build and all former ones, and
//! refuses later ones; the sender writes the one in force, which all nodes read.

use std::io::{Cursor, Write};
use std::num::NonZeroU64;

use fondaco_model::protocol;
use fondaco_resp::Reply;
use thiserror::Error;

use crate::trace::{TEXT_BYTES, TraceContext};

/// The longest accepted envelope, in bytes.
const BYTES_MAX: usize = 4096;

/// The longest envelope that is written: a version of 10 digits, two numbers of 20 digits, a trace, and names.
const WRITTEN_BYTES_MAX: usize = 150;

/// The shortest envelope with a trace: `v1;trace=` and the trace.
const TRACED_BYTES_MIN: usize = 9 + TEXT_BYTES;

/// How a request of another node, or of a cluster-aware client, has to be carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope {
    /// `timeout`: how long the sender waits for the reply, in milliseconds; `None` without a limit. A request that has
    /// not begun by then must not begin.
    pub timeout_ms: Option<u64>,
    /// `epoch`: the epoch of the routing table by which the nodes were chosen, if replies are counted.
    pub epoch: Option<NonZeroU64>,
    /// `charged`: the sender has charged the store's quota with it.
    pub is_charged: bool,
    /// `rate`: the reply begins with the rate of requests that the node gets from all clients, per second.
    pub wants_rate: bool,
    /// `bits`: the sender merges the answers of a computation, and reads dense unions as bits.
    pub reads_bits: bool,
    /// `trace`: the trace of the request, if it is sampled, and the sender's span.
    pub trace: Option<TraceContext>,
}

/// Why an argument is not a valid envelope.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// It is not an envelope, or has a later version.
    #[error(
        "invalid envelope {got:?}: this node reads v1 to v{}, as in v1;timeout=250; if the sender is newer, \
         upgrade the node",
        protocol()
    )]
    Version {
        /// Its first bytes.
        got: Box<str>,
    },
    /// A field has an invalid value.
    #[error("invalid envelope: {field:?} is not a field with a whole number")]
    Value {
        /// The field.
        field: Box<str>,
    },
    /// An unknown field changes the meaning of the request.
    #[error("invalid envelope: {field:?} is not known to this node, which is older: upgrade it")]
    Unknown {
        /// The field.
        field: Box<str>,
    },
}

impl Envelope {
    /// An envelope with a timeout only.
    pub fn with_timeout_ms(timeout_ms: u64) -> Self {
        Self {
            timeout_ms: Some(timeout_ms),
            ..Self::default()
        }
    }

    /// Writes the envelope as one argument, in this protocol.
    pub fn write(&self, protocol: u32, writer: &mut Reply<'_>) {
        let mut text = Cursor::new([0; WRITTEN_BYTES_MAX]);
        // The array has room for all of it.
        let _ = write!(text, "v{protocol}");
        if let Some(timeout_ms) = self.timeout_ms {
            let _ = write!(text, ";timeout={timeout_ms}");
        }
        if let Some(epoch) = self.epoch {
            let _ = write!(text, ";epoch={epoch}");
        }
        if self.is_charged {
            let _ = text.write_all(b";charged");
        }
        if self.wants_rate {
            let _ = text.write_all(b";rate");
        }
        if self.reads_bits {
            let _ = text.write_all(b";bits");
        }
        if let Some(trace) = self.trace {
            let _ = write!(text, ";trace={trace}");
        }
        let length = text.position() as usize;
        writer.bulk(&text.get_ref()[..length]);
    }

    /// Parses an argument as an envelope.
    ///
    /// # Errors
    /// [`EnvelopeError`]: a later version, an invalid value, or an unknown field that must not be ignored.
    pub fn parse(text: &[u8]) -> Result<Self, EnvelopeError> {
        let mut fields = text.split(|&byte| byte == b';');
        if text.len() > BYTES_MAX || !fields.next().is_some_and(is_read) {
            return Err(EnvelopeError::Version { got: head(text) });
        }
        let mut envelope = Self::default();
        for field in fields {
            let mut halves = field.splitn(2, |&byte| byte == b'=');
            let (name, value) = (halves.next().unwrap_or_default(), halves.next());
            let number = || number(value).ok_or_else(|| EnvelopeError::Value { field: head(field) });
            match name {
                b"timeout" => envelope.timeout_ms = Some(number()?),
                b"epoch" => envelope.epoch = NonZeroU64::new(number()?),
                b"charged" => envelope.is_charged = true,
                b"rate" => envelope.wants_rate = true,
                b"bits" => envelope.reads_bits = true,
                // One that this release does not understand is no reason to refuse the request.
                b"trace" => envelope.trace = value.and_then(TraceContext::parse),
                [b'!', ..] => return Err(EnvelopeError::Unknown { field: head(field) }),
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// The trace that an envelope names, valid or not. A request that is not traced costs one comparison of lengths.
    #[inline]
    pub fn trace_of(text: &[u8]) -> Option<TraceContext> {
        match text.len() < TRACED_BYTES_MIN {
            true => None,
            false => Self::parse(text).ok()?.trace,
        }
    }
}

/// Whether this build reads envelopes of a version, such as `v1`.
fn is_read(version: &[u8]) -> bool {
    let protocol = version.strip_prefix(b"v").and_then(fondaco_resp::parse_integer);
    protocol.is_some_and(|number| (1..=i64::from(self::protocol())).contains(&number))
}

fn number(value: Option<&[u8]>) -> Option<u64> {
    let number = fondaco_resp::parse_integer(value?)?;
    u64::try_from(number).ok()
}

/// The first bytes of an unknown text.
fn head(text: &[u8]) -> Box<str> {
    text[..text.len().min(80)].escape_ascii().to_string().into()
}

#[cfg(test)]
mod tests {
    use fondaco_resp::{Arguments, Limits, Protocol, parse_request};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_written_envelope_is_parsed_again(
            timeout_ms in prop::option::of(0..=i64::MAX as u64),
            epoch in 0..=i64::MAX as u64,
            is_charged in any::<bool>(),
            wants_rate in any::<bool>(),
            reads_bits in any::<bool>(),
            trace in prop::option::of((1_u128.., 1_u64..)),
        ) {
            let trace = trace.map(|(trace, span)| TraceContext { trace, span });
            let envelope = Envelope { timeout_ms, epoch: NonZeroU64::new(epoch), is_charged, wants_rate, reads_bits, trace };
            let (mut buffer, mut arguments) = (Vec::new(), Arguments::new());
            let mut writer = Reply::new(&mut buffer, Protocol::Resp2);
            writer.array(1);
            envelope.write(protocol(), &mut writer);
            parse_request(&buffer, &Limits::default(), &mut arguments).unwrap();
            let text = arguments.get(0, &buffer).unwrap();
            prop_assert_eq!(Envelope::parse(text), Ok(envelope));
            prop_assert_eq!(Envelope::trace_of(text), trace);
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(text in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Envelope::parse(&text);
            let _ = Envelope::parse(&[b"v1;", &text[..]].concat());
        }
    }

    #[test]
    fn unknown_fields_are_ignored_unless_marked() {
        let known = Envelope::with_timeout_ms(5);
        assert_eq!(Envelope::parse(b"v1;trace=abc=d;timeout=5;;quiet"), Ok(known));
        let refused = |text: &[u8]| Envelope::parse(text).unwrap_err().to_string();
        assert!(refused(b"v1;timeout=5;!fan-out=2").contains("\"!fan-out=2\" is not known"));
        let later = format!("v{};timeout=5", protocol() + 1);
        for other in [later.as_bytes(), b"v0;timeout=5", b"v;timeout=5", b"1000"] {
            assert!(refused(other).contains(&format!("this node reads v1 to v{}", protocol())));
        }
        assert!(refused(b"v1;timeout=soon").contains("\"timeout=soon\""));
        assert!(refused(b"v1;epoch").contains("\"epoch\""));
        assert!(refused(&[b"v1;", &[b'x'; BYTES_MAX][..]].concat()).contains("invalid envelope"));
    }
}
