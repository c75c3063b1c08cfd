//! Keys of several columns: the columns' texts joined by `:`, in the order of `--key`.
//!
//! Only the last part may contain a `:`. So the end of each part is unambiguous, without escapes that every client
//! would have to write, too.

/// The separator of the parts.
const SEPARATOR: u8 = b':';

/// Appends the part with this number to a key.
///
/// # Errors
/// Why the row is bad.
pub(super) fn append_part(key: &mut Vec<u8>, columns: &[String], number: usize, part: &[u8]) -> Result<(), String> {
    let name = &columns[number];
    if part.is_empty() {
        return Err(format!("{name:?}, which is a part of the key, is empty"));
    }
    if number > 0 {
        key.push(SEPARATOR);
    }
    if number + 1 < columns.len() && memchr::memchr(SEPARATOR, part).is_some() {
        return Err(format!(
            "{name:?} contains \":\", which separates the parts of a key: name this column last in --key"
        ));
    }
    key.extend_from_slice(part);
    Ok(())
}
