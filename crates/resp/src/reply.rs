//! Writes replies, in the version of the protocol that the connection has negotiated.
//!
//! One method per kind of reply; if version 2 does not have the kind, it writes the usual substitute, like Redis. There
//! is no value tree: the caller writes the header of an array, map or set, and then that many elements. The invariant:
//! an error or a status is one line, whatever text it contains.

use crate::decimal::{LINE_BYTES_MAX, write_line};
use std::io::Write;

/// The version of the protocol, as in `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Version 2, with which every connection begins.
    #[default]
    Resp2,
    /// Version 3: maps, sets, doubles, a single null.
    Resp3,
}

impl Protocol {
    /// The number of the version, as in `HELLO`.
    pub const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }

    /// The version with this number, if there is one.
    pub const fn from_number(number: i64) -> Option<Self> {
        match number {
            2 => Some(Self::Resp2),
            3 => Some(Self::Resp3),
            _ => None,
        }
    }
}

/// Appends replies to a connection's output.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The output that is still to be sent.
    pub buffer: &'a mut Vec<u8>,
    /// The version that the client understands.
    pub version: Protocol,
}

impl<'a> Reply<'a> {
    /// Replies in `version`, at the end of `buffer`.
    #[inline]
    pub fn new(buffer: &'a mut Vec<u8>, version: Protocol) -> Self {
        Self { buffer, version }
    }

    /// A status, such as `PONG`. Line ends in it become spaces.
    pub fn simple(&mut self, text: &str) {
        self.one_line(b'+', text);
    }

    /// `OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.buffer.extend_from_slice(b"+OK\r\n");
    }

    /// An error. By convention its first word is a code in capitals, `ERR` if there is no better one. Line ends in it
    /// become spaces, those at its end are removed, as in Redis.
    pub fn error(&mut self, message: &str) {
        self.one_line(b'-', message.trim_end_matches(['\r', '\n']));
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        match value {
            // The usual replies of EXISTS and similar commands.
            0 => self.buffer.extend_from_slice(b":0\r\n"),
            1 => self.buffer.extend_from_slice(b":1\r\n"),
            _ => self.number(b':', value < 0, value.unsigned_abs()),
        }
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.buffer.reserve(bytes.len() + LINE_BYTES_MAX + 2);
        self.length(b'$', bytes.len());
        self.buffer.extend_from_slice(bytes);
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// The head of a string: as many bytes and a line end must follow in the buffer.
    #[inline]
    pub fn bulk_length(&mut self, length: usize) {
        self.length(b'$', length);
    }

    /// A number as a string, as in requests.
    pub fn bulk_decimal(&mut self, number: u64) {
        let mut line = [0; LINE_BYTES_MAX];
        let written = write_line(&mut line, b':', false, number);
        self.bulk(&written[1..written.len() - 2]);
    }

    /// No value.
    #[inline]
    pub fn null(&mut self) {
        self.either(b"$-1\r\n", b"_\r\n");
    }

    /// No array.
    pub fn null_array(&mut self) {
        self.either(b"*-1\r\n", b"_\r\n");
    }

    /// The head of an array: `length` elements follow.
    #[inline]
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// The head of a map: `length` pairs follow, each a key and its value. In version 2, a flat array.
    pub fn map(&mut self, length: usize) {
        match self.version {
            Protocol::Resp2 => self.length(b'*', length * 2),
            Protocol::Resp3 => self.length(b'%', length),
        }
    }

    /// The head of a set: `length` elements follow. In version 2, an array.
    pub fn set(&mut self, length: usize) {
        match self.version {
            Protocol::Resp2 => self.length(b'*', length),
            Protocol::Resp3 => self.length(b'~', length),
        }
    }

    /// The head of a push message, which is not the reply to a request: `length` elements follow. In version 2, an
    /// array.
    pub fn push(&mut self, length: usize) {
        match self.version {
            Protocol::Resp2 => self.length(b'*', length),
            Protocol::Resp3 => self.length(b'>', length),
        }
    }

    /// True or false. In version 2, 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        match (self.version, value) {
            (Protocol::Resp2, value) => self.integer(i64::from(value)),
            (Protocol::Resp3, true) => self.buffer.extend_from_slice(b"#t\r\n"),
            (Protocol::Resp3, false) => self.buffer.extend_from_slice(b"#f\r\n"),
        }
    }

    /// A floating-point number, with as many digits as needed to distinguish it from its neighbours. In version 2, a
    /// bulk.
    pub fn double(&mut self, value: f64) {
        let mut text = [0; DOUBLE_BYTES_MAX];
        let text = double_text(value, &mut text);
        match self.version {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.buffer.push(b',');
                self.buffer.extend_from_slice(text);
                self.buffer.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Text for people, to be displayed verbatim, such as `INFO`. In version 2, a bulk.
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.buffer.extend_from_slice(b"txt:");
                self.buffer.extend_from_slice(text.as_bytes());
                self.buffer.extend_from_slice(b"\r\n");
            }
        }
    }

    fn one_line(&mut self, kind: u8, text: &str) {
        self.buffer.reserve(text.len() + 3);
        self.buffer.push(kind);
        let start = self.buffer.len();
        self.buffer.extend_from_slice(text.as_bytes());
        for byte in &mut self.buffer[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.buffer.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn either(&mut self, version_2: &[u8], version_3: &[u8]) {
        self.buffer.extend_from_slice(match self.version {
            Protocol::Resp2 => version_2,
            Protocol::Resp3 => version_3,
        });
    }

    #[inline]
    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, false, length as u64);
    }

    #[inline]
    fn number(&mut self, kind: u8, negative: bool, magnitude: u64) {
        let mut line = [0; LINE_BYTES_MAX];
        let written = write_line(&mut line, kind, negative, magnitude);
        self.buffer.extend_from_slice(written);
    }
}

/// A sign, 17 digits, a point, and either up to four leading zeros or an exponent of five bytes.
const DOUBLE_BYTES_MAX: usize = 32;

/// From here on, the exponent form is shorter, and C programs print it as well.
const PLAIN_DOUBLE_MAX: f64 = 1e17;
const PLAIN_DOUBLE_MIN: f64 = 1e-5;

fn double_text(value: f64, text: &mut [u8; DOUBLE_BYTES_MAX]) -> &[u8] {
    if value.is_nan() {
        return b"nan";
    }
    if value.is_infinite() {
        return if value < 0.0 { b"-inf" } else { b"inf" };
    }
    let magnitude = value.abs();
    let mut rest = &mut text[..];
    let written = if magnitude == 0.0 || (PLAIN_DOUBLE_MIN..PLAIN_DOUBLE_MAX).contains(&magnitude) {
        write!(rest, "{value}")
    } else {
        write!(rest, "{value:e}")
    };
    debug_assert!(written.is_ok(), "a double is at most {DOUBLE_BYTES_MAX} bytes");
    let length = DOUBLE_BYTES_MAX - rest.len();
    &text[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(version: Protocol, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut buffer = Vec::new();
        write(&mut Reply::new(&mut buffer, version));
        String::from_utf8(buffer).unwrap()
    }

    fn assert_written(version_2: &str, version_3: &str, write: impl Fn(&mut Reply<'_>)) {
        assert_eq!(written(Protocol::Resp2, &write), version_2);
        assert_eq!(written(Protocol::Resp3, &write), version_3);
    }

    #[test]
    fn a_number_as_a_string_is_a_bulk_of_digits() {
        for (number, expected) in [
            (0, "$1\r\n0\r\n"),
            (1_024, "$4\r\n1024\r\n"),
            (u64::MAX, "$20\r\n18446744073709551615\r\n"),
        ] {
            assert_written(expected, expected, |reply| reply.bulk_decimal(number));
        }
    }

    #[test]
    fn common_types_are_written_the_same_in_both_versions() {
        let both = |expected: &str, write: &dyn Fn(&mut Reply<'_>)| {
            assert_written(expected, expected, write);
        };
        both("+OK\r\n", &|reply| reply.ok());
        both("+PONG\r\n", &|reply| reply.simple("PONG"));
        both("-ERR no\r\n", &|reply| reply.error("ERR no"));
        both(":0\r\n:1\r\n:-12\r\n", &|reply| {
            reply.integer(0);
            reply.integer(1);
            reply.integer(-12);
        });
        both(":-9223372036854775808\r\n", &|reply| reply.integer(i64::MIN));
        both("$0\r\n\r\n$3\r\na\r\n\r\n", &|reply| {
            reply.bulk(b"");
            reply.bulk(b"a\r\n");
        });
        both("*2\r\n", &|reply| reply.array(2));
    }

    #[test]
    fn types_of_version_3_have_substitutes_in_version_2() {
        assert_written("$-1\r\n", "_\r\n", |reply| reply.null());
        assert_written("*4\r\n", "%2\r\n", |reply| reply.map(2));
        assert_written("*2\r\n", "~2\r\n", |reply| reply.set(2));
        assert_written("*2\r\n", ">2\r\n", |reply| reply.push(2));
        assert_written(":1\r\n", "#t\r\n", |reply| reply.boolean(true));
        assert_written(":0\r\n", "#f\r\n", |reply| reply.boolean(false));
        assert_written("$4\r\n0.25\r\n", ",0.25\r\n", |reply| reply.double(0.25));
        assert_written("$2\r\nab\r\n", "=6\r\ntxt:ab\r\n", |reply| reply.verbatim("ab"));
    }

    #[test]
    fn doubles_at_the_edges_are_spelled_as_c_reads_them() {
        let double = |value: f64| written(Protocol::Resp3, |reply| reply.double(value));
        assert_eq!(double(f64::INFINITY), ",inf\r\n");
        assert_eq!(double(f64::NEG_INFINITY), ",-inf\r\n");
        assert_eq!(double(f64::NAN), ",nan\r\n");
        assert_eq!(double(10.0), ",10\r\n");
        assert_eq!(double(-0.0), ",-0\r\n");
        assert_eq!(double(1e300), ",1e300\r\n");
        assert_eq!(double(-2.2250738585072014e-308), ",-2.2250738585072014e-308\r\n");
        assert_eq!(double(0.00001234567890123456), ",0.00001234567890123456\r\n");
    }

    #[test]
    fn versions_are_known_by_number() {
        for version in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(Protocol::from_number(version.number()), Some(version));
        }
        assert_eq!(Protocol::from_number(4), None);
    }

    proptest! {
        #[test]
        fn an_error_is_one_line_whatever_it_quotes(text in "[a\r\n]{0,9}") {
            let line = written(Protocol::Resp2, |reply| reply.error(&text));
            prop_assert_eq!(line.matches(['\r', '\n']).count(), 2);
            prop_assert!(line.ends_with("\r\n"));
            prop_assert_eq!(line.len(), text.trim_end_matches(['\r', '\n']).len() + 3);
        }

        #[test]
        fn a_bulk_has_its_length_and_its_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut buffer = b"before".to_vec();
            Reply::new(&mut buffer, Protocol::Resp2).bulk(&bytes);
            let head = format!("before${}\r\n", bytes.len());
            prop_assert_eq!(buffer, [head.as_bytes(), &bytes, b"\r\n"].concat());
        }

        #[test]
        fn every_finite_double_is_read_back_the_same(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let line = written(Protocol::Resp3, |reply| reply.double(value));
            let read: f64 = line[1..].trim_end().parse().unwrap();
            prop_assert_eq!(read.to_bits(), bits);
        }
    }
}
