//! Inline requests: lines of words, typed by a person or sent by a health check.
//!
//! The quoting rules are those of Redis (`sdssplitargs`): `"…"` knows `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a`, and keeps
//! any other escaped byte; `'…'` only knows `\'`. A quote may open in the middle of a word, and the closing quote
//! ends the word. A NUL is an ordinary byte, while Redis stops reading there.

use crate::{Arguments, ProtocolError};
use memchr::memchr2;

/// Splits `line`, without its line end, into `arguments`. `line` is the start of the caller's buffer.
pub(crate) fn split(line: &[u8], arguments: &mut Arguments) -> Result<(), ProtocolError> {
    if memchr2(b'"', b'\'', line).is_none() {
        split_plain(line, arguments);
        Ok(())
    } else {
        split_quoted(line, arguments)
    }
}

/// Whether the byte may precede a word, as in C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Whether the byte ends an unquoted word. Vertical tab and form feed do not.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn skip_blanks(line: &[u8], mut position: usize) -> usize {
    while line.get(position).is_some_and(|&byte| is_blank(byte)) {
        position += 1;
    }
    position
}

fn split_plain(line: &[u8], arguments: &mut Arguments) {
    let mut start = skip_blanks(line, 0);
    while start < line.len() {
        let length = line[start..].iter().position(|&byte| ends_word(byte));
        let end = length.map_or(line.len(), |length| start + length);
        arguments.push_place(start, end);
        start = skip_blanks(line, end);
    }
}

fn split_quoted(line: &[u8], arguments: &mut Arguments) -> Result<(), ProtocolError> {
    let mut position = skip_blanks(line, 0);
    while position < line.len() {
        arguments.push_unquoted(|word| {
            position = read_word(line, position, word)?;
            Ok(())
        })?;
        position = skip_blanks(line, position);
    }
    Ok(())
}

/// Reads the word at `position` into `word`, and returns where it ends.
fn read_word(line: &[u8], mut position: usize, word: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    while let Some(&byte) = line.get(position) {
        position += 1;
        match byte {
            b'"' => return read_double_quoted(line, position, word),
            b'\'' => return read_single_quoted(line, position, word),
            byte if ends_word(byte) => return Ok(position),
            byte => word.push(byte),
        }
    }
    Ok(position)
}

fn read_double_quoted(line: &[u8], mut position: usize, word: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(position..).unwrap_or_default() {
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_value(*high) << 4 | hex_value(*low));
                position += 4;
            }
            [b'\\', escaped, ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    &other => other,
                });
                position += 2;
            }
            [b'"', after @ ..] => return end_of_quotes(after, position + 1),
            [byte, ..] => {
                word.push(*byte);
                position += 1;
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

fn read_single_quoted(line: &[u8], mut position: usize, word: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(position..).unwrap_or_default() {
            [b'\\', b'\'', ..] => {
                word.push(b'\'');
                position += 2;
            }
            [b'\'', after @ ..] => return end_of_quotes(after, position + 1),
            [byte, ..] => {
                word.push(*byte);
                position += 1;
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// A closing quote must be followed by a space or the end.
fn end_of_quotes(after: &[u8], position: usize) -> Result<usize, ProtocolError> {
    match after.first() {
        Some(&byte) if !is_blank(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(position),
    }
}

/// The value of a hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut arguments = Arguments::new();
        split(line, &mut arguments)?;
        Ok(arguments.iter(line).map(<[u8]>::to_vec).collect())
    }

    fn assert_words(line: &str, expected: &[&[u8]]) {
        assert_eq!(words(line.as_bytes()).unwrap(), expected, "{line:?}");
    }

    #[test]
    fn words_are_split_at_blanks() {
        assert_words("", &[]);
        assert_words(" \t ", &[]);
        assert_words("PING", &[b"PING"]);
        assert_words("  get \t key ", &[b"get", b"key"]);
        assert_words("a\x0bb \x0bc", &[b"a\x0bb", b"c"]);
    }

    #[test]
    fn double_quotes_know_escapes() {
        assert_words(
            r#"set "a b" "\x41\xfF\n\r\t\b\a\"\\\q""#,
            &[b"set", b"a b", b"A\xff\n\r\t\x08\x07\"\\q"],
        );
        assert_words(r#""\x4" "\xzz""#, &[b"x4", b"xzz"]);
        assert_words(r#""" x"#, &[b"", b"x"]);
    }

    #[test]
    fn single_quotes_only_know_their_own_escape() {
        assert_words(r"'a\n' '\'' ''", &[br"a\n", b"'", b""]);
    }

    #[test]
    fn a_quote_may_open_inside_a_word() {
        assert_words(r#"fo"o b""#, &[b"foo b"]);
        assert_words("fo'o b'", &[b"foo b"]);
    }

    #[test]
    fn an_unclosed_or_misplaced_quote_is_refused() {
        for line in [r#"""#, "'", r#"a "b"#, r#""a"b"#, "'a'b", r#""\"#, r#""a""b""#, r"'\'"] {
            let refused = Err(ProtocolError::UnbalancedQuotes);
            assert_eq!(words(line.as_bytes()), refused, "{line:?}");
        }
    }

    fn quote(word: &[u8]) -> String {
        let escaped: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{escaped}\"")
    }

    proptest! {
        #[test]
        fn any_bytes_come_through_quotes(wanted: Vec<Vec<u8>>) {
            let line = wanted.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(words(line.as_bytes()).unwrap(), wanted);
        }

        #[test]
        fn text_comes_through_single_quotes(wanted in prop::collection::vec("[ -&(-\\[\\]-~]*", 1..5)) {
            let line = wanted.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join("\t");
            let wanted: Vec<_> = wanted.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(words(line.as_bytes()).unwrap(), wanted);
        }

        #[test]
        fn unquoting_never_makes_a_line_longer(line: Vec<u8>) {
            if let Ok(words) = words(&line) {
                prop_assert!(words.iter().map(Vec::len).sum::<usize>() <= line.len());
            }
        }
    }
}
