//! Integers in as few bytes as they need: seven bits a byte, the lowest first (LEB128).
//!
//! Every number has one encoding: longer ones are refused, so that equal values have equal bytes.

use super::error::RecordError;

/// A target to which bytes are appended.
pub(super) trait Sink {
    fn push(&mut self, byte: u8);
    fn extend_from_slice(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn push(&mut self, byte: u8) {
        self.push(byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts how many bytes were appended.
#[derive(Debug)]
pub(super) struct Length(pub(super) usize);

impl Sink for Length {
    fn push(&mut self, _: u8) {
        self.0 += 1;
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Appends a number.
pub(super) fn put(out: &mut impl Sink, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the difference of two numbers, which may have either sign: small differences are short.
pub(super) fn put_difference(out: &mut impl Sink, number: u64, from: u64) {
    let difference = number.wrapping_sub(from) as i64;
    put(out, zigzag(difference));
}

/// Appends a signed number.
pub(super) fn put_signed(out: &mut impl Sink, number: i64) {
    put(out, zigzag(number));
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Reads encoded values from the front, and remembers its position.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn byte(&mut self) -> Result<u8, RecordError> {
        let byte = *self.bytes.get(self.at).ok_or(RecordError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// Skips `length` bytes, and returns their range.
    pub(super) fn skip(&mut self, length: u64) -> Result<std::ops::Range<usize>, RecordError> {
        if length > self.left() as u64 {
            return Err(RecordError::Truncated);
        }
        let start = self.at;
        self.at += length as usize;
        Ok(start..self.at)
    }

    /// The next bytes.
    pub(super) fn bytes(&mut self, length: u64) -> Result<&'a [u8], RecordError> {
        let range = self.skip(length)?;
        Ok(&self.bytes[range])
    }

    pub(super) fn number(&mut self) -> Result<u64, RecordError> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut number = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit, and the last byte of a longer number is not zero.
            if (shift == 63 && bits > 1) || byte == 0 {
                return Err(RecordError::invalid("a number is not written in the shortest way"));
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(RecordError::invalid("a number is longer than 64 bits"))
    }

    pub(super) fn number_u32(&mut self, what: &'static str) -> Result<u32, RecordError> {
        u32::try_from(self.number()?).map_err(|_| RecordError::invalid(what))
    }

    pub(super) fn difference(&mut self, from: u64) -> Result<u64, RecordError> {
        Ok(from.wrapping_add(self.signed()? as u64))
    }

    pub(super) fn signed(&mut self) -> Result<i64, RecordError> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Result<(), RecordError> {
        match self.left() {
            0 => Ok(()),
            _ => Err(RecordError::invalid("there are bytes after its end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_decoded_as_they_were_encoded(numbers: Vec<(u64, i64)>) {
            let mut bytes = Vec::new();
            for &(number, signed) in &numbers {
                put(&mut bytes, number);
                put_signed(&mut bytes, signed);
                put_difference(&mut bytes, number, signed as u64);
            }
            let mut reader = Reader::new(&bytes);
            for &(number, signed) in &numbers {
                prop_assert_eq!(reader.number().unwrap(), number);
                prop_assert_eq!(reader.signed().unwrap(), signed);
                prop_assert_eq!(reader.difference(signed as u64).unwrap(), number);
            }
            prop_assert!(reader.end().is_ok());
        }

        #[test]
        fn decoded_bytes_are_encoded_the_same(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while let Ok(number) = { let from = reader.at; reader.number().map(|number| (from, number)) } {
                let (from, number) = number;
                let mut again = Vec::new();
                put(&mut again, number);
                prop_assert_eq!(&again[..], &bytes[from..reader.at]);
            }
        }
    }
}
