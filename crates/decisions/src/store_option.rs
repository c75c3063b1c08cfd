//! Reads the options of a new store, or of a change of one, from a document.

use fondaco_model::{StoreChange, StoreKind, StoreName, StoreOption};
use serde_json::{Map, Value};

use crate::operator::OperatorError;

/// The options that a document gives a store of this kind, when it `is_new`, or is changed. A member that is null is left out,
/// unless it takes an option back.
///
/// # Errors
/// The first member that is no option, or has a value that is not possible; or the options that the kind does not have, or
/// that cannot be changed.
pub fn read_options(
    store: &StoreName,
    kind: StoreKind,
    document: &Map<String, Value>,
    is_new: bool,
) -> Result<StoreChange, OperatorError> {
    let invalid = |reason: String| OperatorError::InvalidDefinition {
        store: store.clone(),
        reason,
    };
    let (mut foreign, mut given) = (Vec::new(), Map::new());
    for (member, value) in members(document) {
        let Some(option) = StoreOption::of_member(&member) else {
            let known = StoreOption::all().iter().filter_map(|option| option.member(kind));
            let known: Vec<&str> = known.collect();
            return Err(invalid(format!(
                "there is no option {member:?}: use {}; see /openapi.json",
                known.join(", ")
            )));
        };
        let name = option.name;
        let is_zero = option.none == Some("0") && *value == 0;
        let value = if is_zero { &Value::Null } else { value };
        if value.is_null() && (option.none.is_none() || is_new) {
            continue;
        }
        match option.member(kind) {
            None => foreign.push(format!("--{name} ({member}), only {} stores have it", option.kinds())),
            Some(_) if option.is_fixed && !is_new => {
                return Err(OperatorError::Unchangeable {
                    store: store.clone(),
                    what: name,
                });
            }
            Some(own) if own != member => foreign.push(format!("{member}, it has {own}")),
            Some(_) => {}
        }
        if !value.is_null() {
            let checked = option.value.check(value);
            checked.map_err(|remedy| invalid(format!("--{name} ({member}) is {value}: {remedy}")))?;
        }
        StoreOption::put(&mut given, &member, value.clone());
    }
    if !foreign.is_empty() {
        return Err(OperatorError::OtherKind {
            store: store.clone(),
            kind: kind.as_str(),
            foreign: foreign.join("; nor "),
        });
    }
    serde_json::from_value(Value::Object(given)).map_err(|error| invalid(error.to_string()))
}

/// The members of a document with their values; those of its parts with a dot: `stream.rewind_ms`.
fn members(document: &Map<String, Value>) -> Vec<(String, &Value)> {
    let mut members = Vec::new();
    for (name, value) in document {
        match value {
            Value::Object(part) => {
                members.extend(part.iter().map(|(member, value)| (format!("{name}.{member}"), value)));
            }
            Value::Null if matches!(name.as_str(), "stream" | "versioned") => {}
            value => members.push((name.clone(), value)),
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: StoreKind, document: &Value, is_new: bool) -> Result<StoreChange, String> {
        let read = read_options(&"s".parse().unwrap(), kind, document.as_object().unwrap(), is_new);
        read.map_err(|error| error.to_string())
    }

    fn refused(kind: StoreKind, document: &Value, is_new: bool) -> String {
        read(kind, document, is_new).unwrap_err()
    }

    #[test]
    fn a_refusal_names_each_option_and_the_kinds_that_have_it() {
        let given = json!({
            "replicas": 1, "versioned": {"ttl_ms": 5}, "everywhere": true, "stream": {"lag_ms": 5}
        });
        let batch = refused(StoreKind::Batch, &given, true);
        assert!(
            batch.contains("--ttl (versioned.ttl_ms), only hybrid and versioned stores have it"),
            "{batch}"
        );
        assert!(
            batch.contains("--max-lag (stream.lag_ms), only hybrid stores have it"),
            "{batch}"
        );
        assert!(!batch.contains("replicas") && !batch.contains("everywhere"), "{batch}");
        let versioned = refused(StoreKind::Versioned, &given, true);
        assert!(
            versioned.contains("--everywhere (everywhere), only batch and hybrid"),
            "{versioned}"
        );
    }

    #[test]
    fn an_option_in_the_place_of_another_kind_is_refused_with_its_own() {
        let hybrid = refused(StoreKind::Hybrid, &json!({"versioned": {"engine": "log"}}), true);
        assert!(hybrid.contains("versioned.engine, it has stream.engine"), "{hybrid}");
        assert!(read(StoreKind::Hybrid, &json!({"stream": {"engine": "log"}}), true).is_ok());
        let changed = refused(StoreKind::Hybrid, &json!({"versioned": {"engine": "log"}}), false);
        assert!(changed.contains("cannot be changed"), "{changed}");
    }

    #[test]
    fn an_unknown_member_or_an_impossible_value_is_refused_by_name_with_the_remedy() {
        for (document, expected) in [
            (json!({"backup": 1}), r#"no option "backup": use backups, "#),
            (json!({"versioned": {"read": 1}}), r#"no option "versioned.read""#),
            (
                json!({"backups": 101}),
                "--backups (backups) is 101: use a whole number from 0 to 100",
            ),
            (
                json!({"backups": "1"}),
                r#"--backups (backups) is "1": use a whole number"#,
            ),
            (
                json!({"everywhere": 1}),
                "--everywhere (everywhere) is 1: use true or false",
            ),
            (json!({"value_type": "id"}), "use one of bytes, ids, graph, string"),
            (json!({"fan_out": "near"}), "use a strategy"),
        ] {
            let error = refused(StoreKind::Batch, &document, true);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn zero_or_null_takes_back_what_can_be_taken_back_and_null_leaves_out_the_rest() {
        let none = json!({"replicas": 0, "space_quota_bytes": null, "fan_out": null, "backups": null, "stream": null});
        let change = read(StoreKind::Batch, &none, false).unwrap();
        let expected = StoreChange {
            replicas: Some(None),
            space_quota_bytes: Some(None),
            fan_out: Some(None),
            ..StoreChange::default()
        };
        assert_eq!(change, expected);
        assert_eq!(read(StoreKind::Batch, &none, true), Ok(StoreChange::default()));
        let tolerant = read(StoreKind::Batch, &json!({"tolerate_failures": 0}), false).unwrap();
        assert_eq!(tolerant.tolerate_failures, Some(Some(0)));
    }
}
