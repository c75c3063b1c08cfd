//! Updates of JSON text. `updates.rs` has those of values of other types.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_schema::{Content, UPDATE_BYTES_MAX, Update};

/// The value after updates, and the number of updates that fit.
fn after(value: Option<&str>, updates: &[&str]) -> (Option<String>, usize) {
    let value = value.map(|value| Bytes::from(value.to_owned()));
    let mut content = Content::of(value, &Arc::default());
    let fit = updates
        .iter()
        .filter(|text| content.apply(&Update::parse(text.as_bytes()).unwrap()).is_ok())
        .count();
    let value = content.value().map(|value| String::from_utf8(value.to_vec()).unwrap());
    (value, fit)
}

#[test]
fn operations_change_fields() {
    for (value, updates, expected) in [
        (
            None,
            [r#"{"set":{"a":1,"b":[2]}}"#, r#"{"set":{"a":null}}"#],
            r#"{"b":[2]}"#,
        ),
        (
            None,
            [r#"{"add":{"t":["x","y"]}}"#, r#"{"add":{"t":["y","z"]}}"#],
            r#"{"t":["x","y","z"]}"#,
        ),
        (
            None,
            [r#"{"append":{"t":[1,1]}}"#, r#"{"append":{"t":[1]}}"#],
            r#"{"t":[1,1,1]}"#,
        ),
        (
            None,
            [r#"{"add":{"m":{"x":1}}}"#, r#"{"add":{"m":{"y":2}}}"#],
            r#"{"m":{"x":1,"y":2}}"#,
        ),
        (
            Some(r#"{"m":{"x":1,"y":2},"t":[1,2,1]}"#),
            [r#"{"remove":{"m":["x"],"t":[1]}}"#, r#"{"remove":{"none":[1]}}"#],
            r#"{"m":{"y":2},"t":[2]}"#,
        ),
        (
            Some(r#"{"n":40}"#),
            [r#"{"increment":{"n":3}}"#, r#"{"increment":{"n":-1,"new":5}}"#],
            r#"{"n":42,"new":5}"#,
        ),
        (Some("40"), [r#"{"increment":3}"#, r#"{"increment":-1}"#], "42"),
        (None, [r#"{"increment":3}"#, r#"{"increment":-1}"#], "2"),
        // All of one update, in the order of the operations.
        (
            Some(r#"{"t":[1]}"#),
            [
                r#"{"append":{"t":[1]},"set":{"n":1},"remove":{"t":[1]},"increment":{"n":1}}"#,
                r#"{"set":{"z":null}}"#,
            ],
            r#"{"n":2,"t":[1]}"#,
        ),
    ] {
        assert_eq!(after(value, &updates), (Some(expected.to_owned()), 2), "{updates:?}");
    }
    assert_eq!(after(None, &[r#"{"remove":{"t":[1]}}"#]), (None, 1));
}

#[test]
fn an_absent_key_stays_absent_if_there_is_nothing_to_remove() {
    for update in [r#"{"set":{"a":null}}"#, r#"{"remove":{"t":[1]}}"#] {
        assert_eq!(after(None, &[update]), (None, 1), "{update}");
    }
    // A value that has lost its last field is not an absent one.
    assert_eq!(
        after(Some(r#"{"a":1}"#), &[r#"{"set":{"a":null}}"#]),
        (Some("{}".into()), 1)
    );
    let both = [r#"{"set":{"a":1}}"#, r#"{"set":{"a":null}}"#];
    assert_eq!(after(None, &both), (Some("{}".into()), 2));
}

#[test]
fn operations_that_do_not_fit_have_no_effect() {
    for (value, update) in [
        ("text", r#"{"set":{"a":1}}"#),
        ("text", r#"{"increment":1}"#),
        ("7", r#"{"set":{"a":1}}"#),
        ("{}", r#"{"increment":1}"#),
        (r#"{"a":"x"}"#, r#"{"increment":{"a":1}}"#),
        (r#"{"a":1.5}"#, r#"{"increment":{"a":1}}"#),
        (r#"{"a":{}}"#, r#"{"append":{"a":[1]}}"#),
        (r#"{"a":[]}"#, r#"{"add":{"a":{"b":1}}}"#),
        (r#"{"a":1}"#, r#"{"remove":{"a":[1]}}"#),
        ("9223372036854775807", r#"{"increment":1}"#),
    ] {
        assert_eq!(after(Some(value), &[update]), (Some(value.to_owned()), 0), "{update}");
    }
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(UPDATE_BYTES_MAX - 20));
    let (kept, fit) = after(
        Some(&long),
        &[
            r#"{"set":{"b":"too long"}}"#,
            r#"{"set":{"a":null}}"#,
            r#"{"set":{"b":1}}"#,
        ],
    );
    assert_eq!((kept.as_deref(), fit), (Some(&*long), 0));
}

#[test]
fn texts_that_are_no_updates_say_why() {
    for (text, reason) in [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", "has operations"),
        (r#"{"set":{}}"#, "has operations"),
        (r#"{"put":{"a":1}}"#, "unknown operation \"put\""),
        (r#"{"increment":1,"set":{"a":1}}"#, "or one increment"),
        (r#"{"increment":1.5}"#, "names no fields: 1.5"),
        (r#"{"increment":{"a":9007199254740993}}"#, "field \"a\""),
        (r#"{"set":1}"#, "names no fields: 1"),
        (r#"{"increment":{"a":"1"}}"#, "field \"a\""),
        (r#"{"append":{"a":1}}"#, "field \"a\""),
    ] {
        let found = Update::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(found.contains(reason), "{text}: {found}");
    }
    assert!(Update::parse(&vec![b' '; UPDATE_BYTES_MAX + 1]).is_err());
}
