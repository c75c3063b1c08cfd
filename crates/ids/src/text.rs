//! Sets of ids as people and CSV files write them: `1 5 9` or `1,5,9`.

use crate::{ID_MAX, IdsError};

/// Reads ids that are separated by white space, or by commas with or without white space around them. They may be in
/// any order and stand there several times; the result is sorted and has each once. A text without ids is the empty
/// set.
///
/// # Errors
/// The first word that is not an id, and its place.
pub fn parse_text(text: &str) -> Result<Vec<u64>, IdsError> {
    if text.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let mut ids = Vec::new();
    let mut at = 0;
    for piece in text.split(',') {
        let mut words = piece.split_ascii_whitespace().peekable();
        if words.peek().is_none() {
            let word = piece.to_owned();
            return Err(IdsError::Text { word, at });
        }
        for word in words {
            // The words are parts of the text.
            let word_at = word.as_ptr() as usize - text.as_ptr() as usize;
            ids.push(parse_id(word, word_at)?);
        }
        at += piece.len() + 1;
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn parse_id(word: &str, at: usize) -> Result<u64, IdsError> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    match word.parse() {
        Ok(id) if digits && id <= ID_MAX => Ok(id),
        Ok(id) if digits => Err(IdsError::TooLarge { id }),
        _ => Err(IdsError::Text {
            word: word.to_owned(),
            at,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_separated_by_spaces_or_commas_in_any_order() {
        for text in ["1 5 9", "1,5,9", " 9, 1 ,5\t1\n", "9 5 1 5"] {
            assert_eq!(parse_text(text), Ok(vec![1, 5, 9]), "{text:?}");
        }
        assert_eq!(parse_text(" \n"), Ok(vec![]));
        assert_eq!(parse_text("9223372036854775807 0"), Ok(vec![0, ID_MAX]));
    }

    #[test]
    fn a_word_that_is_not_an_id_is_named_with_its_position() {
        for (text, word, at) in [
            ("1 x 3", "x", 2),
            ("1,,3", "", 2),
            ("1, ,3", " ", 2),
            ("1,", "", 2),
            (",", "", 0),
            ("12 +3", "+3", 3),
            ("-1", "-1", 0),
            ("1;2", "1;2", 0),
            ("7 18446744073709551616", "18446744073709551616", 2),
        ] {
            let word = word.to_owned();
            assert_eq!(parse_text(text), Err(IdsError::Text { word, at }), "{text:?}");
        }
        let id = 1 << 63;
        assert_eq!(parse_text("9223372036854775808"), Err(IdsError::TooLarge { id }));
    }
}
