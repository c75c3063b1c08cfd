//! Keys of several columns: their texts with `:` between them, in the order of `--key`.
//!
//! Only the last part may have a `:` in it. So a key says where each part ends, without escapes that
//! every client would have to write, too.

/// What stands between the parts.
const SEPARATOR: u8 = b':';

/// Appends the part with this number to a key.
///
/// # Errors
/// Why the row is refused.
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
            "{name:?} has a \":\" in it, which is what stands between the parts of a key: name this column last in --key"
        ));
    }
    key.extend_from_slice(part);
    Ok(())
}
