//! Decimal integers of the protocol: parsing of length lines, writing of numbers in replies.
//!
//! Not a general number parser: it accepts what Redis's `string2ll` accepts (no plus sign, no leading zeros, no
//! spaces), and writes the shortest form.

use memchr::memchr;

/// The longest incomplete length line, in bytes. An `i64` has at most 20 characters; Redis waits for up to 64 KiB.
const COUNT_BYTES_MAX: usize = 32;

/// The content of a length line, without the byte for its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// A number, and the length of the line with its line end.
    Value { value: i64, bytes: usize },
    /// The line has not ended yet.
    Partial,
    /// The line is not a number.
    Invalid,
    /// The line is too long.
    TooLong,
}

/// Reads a length line at the start of `line`, which may be longer, or end before the line does.
#[inline]
pub(crate) fn read_count(line: &[u8]) -> Count {
    // Nearly all lines have one to three digits: no search for the line end.
    let mut value = 0i64;
    let mut digits = 0;
    while digits < 18
        && let Some(&byte) = line.get(digits)
    {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value * 10 + i64::from(digit);
        digits += 1;
    }
    if let Some(b"\r\n") = line.get(digits..digits + 2)
        && (digits == 1 || (digits > 1 && line[0] != b'0'))
    {
        return Count::Value {
            value,
            bytes: digits + 2,
        };
    }
    read_unusual_count(line)
}

/// Negative, very long, malformed or incomplete lines: rare, so kept out of the loop above.
#[cold]
fn read_unusual_count(line: &[u8]) -> Count {
    let head = &line[..line.len().min(COUNT_BYTES_MAX)];
    let Some(end) = memchr(b'\r', head) else {
        return if line.len() < COUNT_BYTES_MAX {
            Count::Partial
        } else {
            Count::TooLong
        };
    };
    match line.get(end + 1) {
        None => Count::Partial,
        Some(b'\n') => match parse_integer(&line[..end]) {
            Some(value) => Count::Value { value, bytes: end + 2 },
            None => Count::Invalid,
        },
        Some(_) => Count::Invalid,
    }
}

/// Parses a whole argument as an integer, by the rules of Redis: an optional minus sign and digits, in the shortest
/// form only. `None` for anything else, or outside of the range of `i64`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => {}
    }
    let mut value = 0i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Counts downwards, because the negative half of the range is larger.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

const DIGIT_PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut number = 0;
    while number < 100 {
        pairs[number * 2] = b'0' + (number / 10) as u8;
        pairs[number * 2 + 1] = b'0' + (number % 10) as u8;
        number += 1;
    }
    pairs
};

/// Room for any line of a kind byte, a sign, 20 digits and a line end.
pub(crate) const LINE_BYTES_MAX: usize = 24;

/// Writes `kind`, the number and a line end at the end of `line`, and returns the written part.
#[inline]
pub(crate) fn write_line(line: &mut [u8; LINE_BYTES_MAX], kind: u8, negative: bool, magnitude: u64) -> &[u8] {
    let mut start = LINE_BYTES_MAX - 2;
    line[start..].copy_from_slice(b"\r\n");
    let mut rest = magnitude;
    while rest >= 100 {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        start -= 2;
        line[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if rest >= 10 {
        let pair = rest as usize * 2;
        start -= 2;
        line[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    } else {
        start -= 1;
        line[start] = b'0' + rest as u8;
    }
    if negative {
        start -= 1;
        line[start] = b'-';
    }
    start -= 1;
    line[start] = kind;
    &line[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_shortest_form_of_a_count_is_valid() {
        let value = |value, bytes| Count::Value { value, bytes };
        assert_eq!(read_count(b"0\r\n"), value(0, 3));
        assert_eq!(read_count(b"16\r\n$3\r\n"), value(16, 4));
        assert_eq!(read_count(b"-1\r\n"), value(-1, 4));
        assert_eq!(read_count(b"9223372036854775807\r\n"), value(i64::MAX, 21));
        for bad in ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "1x", "9223372036854775808"] {
            assert_eq!(read_count(format!("{bad}\r\n").as_bytes()), Count::Invalid, "{bad:?}");
        }
        assert_eq!(read_count(b"1\rx"), Count::Invalid);
    }

    #[test]
    fn an_incomplete_count_is_partial_up_to_a_limit() {
        for part in ["", "1", "1\r", "abc", "abc\r"] {
            assert_eq!(read_count(part.as_bytes()), Count::Partial, "{part:?}");
        }
        assert_eq!(read_count(&[b'1'; COUNT_BYTES_MAX - 1]), Count::Partial);
        assert_eq!(read_count(&[b'1'; COUNT_BYTES_MAX]), Count::TooLong);
    }

    #[test]
    fn integers_outside_of_the_range_are_refused() {
        assert_eq!(parse_integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
        assert_eq!(parse_integer(b"9223372036854775808"), None);
    }

    proptest! {
        #[test]
        fn every_integer_is_written_as_std_does_and_read_back(number: i64) {
            let mut line = [0; LINE_BYTES_MAX];
            let written = write_line(&mut line, b':', number < 0, number.unsigned_abs());
            let expected = format!(":{number}\r\n");
            prop_assert_eq!(written, expected.as_bytes());
            prop_assert_eq!(parse_integer(number.to_string().as_bytes()), Some(number));
            let count = Count::Value { value: number, bytes: expected.len() - 1 };
            prop_assert_eq!(read_count(&written[1..]), count);
        }

        #[test]
        fn small_integers_are_written_as_std_does(number in 0u64..100_000) {
            let mut line = [0; LINE_BYTES_MAX];
            let expected = format!("${number}\r\n");
            prop_assert_eq!(write_line(&mut line, b'$', false, number), expected.as_bytes());
        }
    }
}
