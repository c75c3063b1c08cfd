//! Parses the subset of RESP for answers to `GET`, `MGET`, `FONDACO.MGET` and `SET`.

use anyhow::{Result, bail};

/// The beginning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// A value of this many bytes, followed by a line break.
    Bulk(usize),
    /// No value.
    Null,
    /// This many answers follow.
    Array(usize),
    /// `OK`.
    Ok,
    /// A number.
    Integer(usize),
    /// An error, with its text.
    Error(String),
}

/// Parses the first line of an answer; returns it with its length including the line break. `None` if it is incomplete.
///
/// # Errors
/// An answer of a type that none of them has.
#[inline]
pub fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>> {
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return Ok(None);
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let head = match line.split_first() {
        Some((b'$', b"-1")) | Some((b'_', b"")) => Head::Null,
        Some((b'$', digits)) => Head::Bulk(number(digits)?),
        Some((b'*', digits)) => Head::Array(number(digits)?),
        Some((b'+', b"OK")) => Head::Ok,
        Some((b':', digits)) => Head::Integer(number(digits)?),
        Some((b'-', text)) => Head::Error(String::from_utf8_lossy(text).into_owned()),
        _ => bail!("the server answers {:?}", String::from_utf8_lossy(line)),
    };
    Ok(Some((head, end + 1)))
}

#[inline]
fn number(digits: &[u8]) -> Result<usize> {
    let mut number = 0usize;
    for digit in digits {
        match digit {
            b'0'..=b'9' if number < 1 << 40 => number = number * 10 + usize::from(digit - b'0'),
            _ => bail!("the server answers a length of {:?}", String::from_utf8_lossy(digits)),
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_head_is_parsed() {
        let head = |bytes: &[u8]| parse_head(bytes).unwrap();
        assert_eq!(head(b"$12\r\nabc"), Some((Head::Bulk(12), 5)));
        assert_eq!(head(b"$-1\r\n"), Some((Head::Null, 5)));
        assert_eq!(head(b"*2\r\n$1"), Some((Head::Array(2), 4)));
        assert_eq!(head(b"+OK\r\n"), Some((Head::Ok, 5)));
        assert_eq!(head(b"$12"), None);
        assert_eq!(head(b"-ERR no\r\n"), Some((Head::Error("ERR no".into()), 9)));
        assert_eq!(head(b":7\r\n"), Some((Head::Integer(7), 4)));
        assert!(parse_head(b":-1\r\n").is_err());
        assert!(parse_head(b"$1x\r\n").is_err());
    }
}
