//! Glob-style patterns, for `SCAN MATCH`, `CONFIG GET` and `COMMAND LIST`.
//!
//! The rules are those of Redis (`stringmatchlen`): `*`, `?`, `[a-z]`, `[^a]`, and a backslash before a literal
//! character. But unlike in Redis, matching never takes more time than the length of the pattern times that of the
//! text.

/// Whether all of `text` matches `pattern`. With `ignore_case`, the case of ASCII letters is ignored.
pub fn glob_matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let (mut at_pattern, mut at_text) = (0, 0);
    // The position for a retry: after the last star, one byte of text later. Earlier stars need no retry, since the
    // last star can match the same text.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let rest = &pattern[at_pattern..];
        if rest.first() == Some(&b'*') {
            at_pattern += 1;
            retry = Some((at_pattern, at_text));
            continue;
        }
        let step = match text.get(at_text) {
            Some(&byte) => match_one(rest, fold(byte), fold),
            None if rest.is_empty() => return true,
            // A retry cannot gain more text.
            None => return false,
        };
        match (step, retry) {
            (Some(pattern_bytes), _) => {
                at_pattern += pattern_bytes;
                at_text += 1;
            }
            (None, Some((behind_star, tried))) => {
                at_pattern = behind_star;
                at_text = tried + 1;
                retry = Some((behind_star, at_text));
            }
            (None, None) => return false,
        }
    }
}

/// Matches one byte against the start of `pattern`, and returns how much of the pattern was used.
fn match_one(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => match_class(class, byte, fold).map(|length| length + 1),
        [b'\\', escaped, ..] => (fold(*escaped) == byte).then_some(2),
        [plain, ..] => (fold(*plain) == byte).then_some(1),
    }
}

/// Matches one byte against a class, without its opening bracket. An unclosed class ends with the pattern.
fn match_class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let negated = class.first() == Some(&b'^');
    let mut position = usize::from(negated);
    let mut found = false;
    loop {
        match &class[position..] {
            [] => break,
            [b']', ..] => {
                position += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == byte;
                position += 2;
            }
            [first, b'-', last, ..] => {
                let (first, last) = (fold(*first), fold(*last));
                found |= (first.min(last)..=first.max(last)).contains(&byte);
                position += 3;
            }
            [one, ..] => {
                found |= fold(*one) == byte;
                position += 1;
            }
        }
    }
    (found != negated).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        glob_matches(pattern.as_bytes(), text.as_bytes(), false)
    }

    #[test]
    fn each_rule_matches_like_redis() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hbllo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hbllo"),
            (r"h\*llo", "h*llo"),
            (r"[\]]", "]"),
            ("[a", "a"),
            ("*a*b*", "xxaxxbxx"),
            ("a**b", "ab"),
            (r"a\", r"a\"),
        ] {
            assert!(matches(pattern, text), "{pattern:?} {text:?}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            (r"h\*llo", "hello"),
            ("*ab", "abx"),
            ("a*b*c", "acb"),
            ("[]a", "a"),
            ("A", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn case_is_ignored_on_request() {
        assert!(glob_matches(b"GeT[a-c]\\X", b"gEtBx", true));
        assert!(!glob_matches(b"GET", b"got", true));
    }

    #[test]
    fn a_pattern_of_many_stars_ends() {
        let text = "a".repeat(10_000);
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(&pattern, &text));
        assert!(matches(&pattern, &(text + "b")));
    }

    /// The definition, as a direct recursion.
    fn matches_by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| matches_by_definition(rest, &text[skip..])),
            (_, []) => false,
            (_, [byte, after @ ..]) => match_one(pattern, *byte, |byte| byte)
                .is_some_and(|length| matches_by_definition(&pattern[length..], after)),
        }
    }

    proptest! {
        #[test]
        fn retrying_only_the_last_star_is_sufficient(pattern in "[ab*?\\[\\]^\\\\-]{0,9}", text in "[ab-]{0,9}") {
            let expected = matches_by_definition(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(&pattern, &text), expected);
        }

        #[test]
        fn no_bytes_make_it_panic(pattern: Vec<u8>, text: Vec<u8>, ignore_case: bool) {
            let _ = glob_matches(&pattern, &text, ignore_case);
        }
    }
}
