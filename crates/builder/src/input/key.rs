//! Keys of several columns: the columns' texts joined by `:`, in the order of `--key`.
//!
//! Only the last part may contain a `:`. So the end of each part is unambiguous, without escapes that every client
//! would have to write, too.
//!
//! The names of vertices in a row of a graph are such parts, too, and so are the parts of a tuple. They are written apart, each as one byte, which is 1 if
//! the part is a number, its length in four bytes, little-endian, and its text.

/// The separator of the parts.
const SEPARATOR: u8 = b':';

/// How the columns of a key become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// The text of the column; of several columns, their texts joined.
    Joined,
    /// Parts that are written apart.
    Parts,
}

/// The columns of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyColumns<'a> {
    pub(super) names: &'a [String],
    pub(super) form: KeyForm,
}

impl KeyColumns<'_> {
    /// Whether the key is the text of one column, unchanged.
    pub(super) fn is_plain(&self) -> bool {
        self.names.len() == 1 && self.form == KeyForm::Joined
    }

    /// Appends the part with this number to a key.
    ///
    /// # Errors
    /// Why the row is bad.
    pub(super) fn append_part(
        &self,
        key: &mut Vec<u8>,
        number: usize,
        part: &[u8],
        is_number: bool,
    ) -> Result<(), String> {
        let name = &self.names[number];
        if self.form == KeyForm::Parts {
            key.push(u8::from(is_number));
            let length = u32::try_from(part.len()).map_err(|_| format!("{name:?} is longer than 4 GiB"))?;
            key.extend_from_slice(&length.to_le_bytes());
            key.extend_from_slice(part);
            return Ok(());
        }
        if part.is_empty() {
            return Err(format!("{name:?}, which is a part of the key, is empty"));
        }
        if number > 0 {
            key.push(SEPARATOR);
        }
        if number + 1 < self.names.len() && memchr::memchr(SEPARATOR, part).is_some() {
            return Err(format!(
                "{name:?} contains \":\", which separates the parts of a key: name this column last in --key"
            ));
        }
        key.extend_from_slice(part);
        Ok(())
    }
}

/// The parts of a key of the form [`KeyForm::Parts`], and whether each is a number.
pub(super) fn parts_in(mut key: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    std::iter::from_fn(move || {
        let (&is_number, rest) = key.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        key = rest;
        Some((part, is_number == 1))
    })
}
