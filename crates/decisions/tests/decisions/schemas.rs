//! Schemas of stores are registered, and stay.

use fondaco_decisions::operator::{self, OperatorError, SCHEMAS_MAX};
use fondaco_decisions::{Change, RecordPath};
use fondaco_model::cluster::SchemaKey;
use fondaco_model::{Compatibility, StoreChange, StoreDefinition, ValueType};
use fondaco_schema::Schema;

use crate::fixture::{Cluster, announcement, name};

fn schema(fields: &str) -> Schema {
    let text = format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#);
    Schema::parse(ValueType::Avro, text.as_bytes(), None).unwrap()
}

fn of_type(store: &str, value_type: ValueType) -> StoreDefinition {
    StoreDefinition {
        value_type,
        ..StoreDefinition::batch(name(store))
    }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::of(1, 8, 1);
    cluster.define(of_type("s", ValueType::Avro)).unwrap();
    cluster
}

fn register(cluster: &mut Cluster, fields: &str) -> Result<u16, OperatorError> {
    let registered = operator::register_schema(&cluster.view, &name("s"), &schema(fields), 7)?;
    if let Some(change) = &registered.change {
        assert!(cluster.apply(change));
    }
    Ok(registered.record.id)
}

const A: &str = r#"{"name":"a","type":"int"}"#;
const B: &str = r#"{"name":"a","type":"int"},{"name":"b","type":"string"}"#;
const B_WITH_DEFAULT: &str = r#"{"name":"a","type":"int"},{"name":"b","type":"string","default":"x"}"#;

#[test]
fn a_schema_gets_the_next_number_and_one_that_means_the_same_has_it_already() {
    let mut cluster = cluster();
    assert_eq!(register(&mut cluster, A), Ok(1));
    assert_eq!(
        register(&mut cluster, r#"{"type": "int", "doc": "of no meaning", "name": "a"}"#),
        Ok(1)
    );
    assert_eq!(register(&mut cluster, B_WITH_DEFAULT), Ok(2));
    assert_eq!(cluster.view.schemas.len(), 2);
}

#[test]
fn a_clash_names_the_field_the_former_schema_and_the_mode() {
    let mut cluster = cluster();
    register(&mut cluster, A).unwrap();
    let refused = register(&mut cluster, B).unwrap_err().to_string();
    for part in [
        "backward",
        "schema 1",
        r#"field "b""#,
        "default",
        "--compatibility none",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let none = StoreChange {
        compatibility: Some(Compatibility::None),
        ..StoreChange::default()
    };
    cluster.alter("s", &none).unwrap();
    assert_eq!(register(&mut cluster, B), Ok(2));
}

#[test]
fn of_two_registrations_at_once_one_looks_again() {
    let mut cluster = cluster();
    let prepare = |cluster: &Cluster, fields: &str| -> Change {
        let registered = operator::register_schema(&cluster.view, &name("s"), &schema(fields), 7);
        registered.unwrap().change.unwrap()
    };
    let (first, second) = (prepare(&cluster, A), prepare(&cluster, B_WITH_DEFAULT));
    assert!(cluster.apply(&first));
    assert!(!cluster.apply(&second), "both would have number 1");
    // Nor if the store asks for more meanwhile.
    let second = prepare(&cluster, B_WITH_DEFAULT);
    let full = StoreChange {
        compatibility: Some(Compatibility::Full),
        ..StoreChange::default()
    };
    cluster.alter("s", &full).unwrap();
    assert!(!cluster.apply(&second));
}

#[test]
fn schemas_are_for_values_of_their_language_alone() {
    let mut cluster = cluster();
    cluster.create("bytes");
    let refused = operator::register_schema(&cluster.view, &name("bytes"), &schema(A), 7);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("--value-type avro"), "{refused}");
    let mut definition = of_type("t", ValueType::Graph);
    definition.key_type = "integer".parse().unwrap();
    let refused = cluster.define(definition);
    assert!(matches!(refused, Err(OperatorError::InvalidDefinition { .. })));
}

#[test]
fn the_number_of_schemas_is_bounded() {
    let mut cluster = cluster();
    register(&mut cluster, A).unwrap();
    let one = cluster.view.schemas.values().next().unwrap().clone();
    for id in 2..=SCHEMAS_MAX as u16 {
        let mut other = one.clone();
        other.record.id = id;
        cluster.view.schemas.insert(other.record.key(), other);
    }
    let refused = register(&mut cluster, B_WITH_DEFAULT);
    assert!(
        matches!(refused, Err(OperatorError::TooManySchemas { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_dropped_store_keeps_its_schemas_and_another_store_with_its_number_has_none_of_them() {
    let mut cluster = cluster();
    register(&mut cluster, A).unwrap();
    let id = cluster.store("s").id;
    cluster
        .request(|view| operator::drop_store(view, &name("s"), 8, 1000))
        .unwrap();
    let kept: Vec<&SchemaKey> = cluster.view.schemas.keys().collect();
    assert_eq!(kept, [&SchemaKey { store: id, id: 1 }]);
    cluster
        .request(|view| operator::restore_store(view, &name("s"), 9))
        .unwrap();
    assert_eq!(register(&mut cluster, A), Ok(1), "restored with its schemas");
    cluster.drop_store("s");
    // All other numbers are taken by dropped stores.
    cluster.view.numbers.as_mut().unwrap().record.last_store = fondaco_model::STORES_MAX as u16;
    let gone = cluster.view.dropped[&id].clone();
    cluster
        .view
        .dropped
        .extend((1..=fondaco_model::STORES_MAX as u16).map(|id| (id, gone.clone())));
    cluster.define(of_type("t", ValueType::Avro)).unwrap();
    assert_eq!(cluster.store("t").id, id);
    assert!(cluster.view.schemas.is_empty());
}

#[test]
fn a_store_with_new_types_waits_for_the_last_member_of_an_earlier_release() {
    let mut cluster = Cluster::of(2, 8, 1);
    let mut old = announcement(2);
    old.protocol = 1;
    cluster.announce(old);
    for (value_type, key_type, option) in [
        (ValueType::Avro, "bytes", "--value-type avro"),
        (ValueType::Bytes, "integer", "--key-type integer"),
    ] {
        let mut definition = of_type("s", value_type);
        definition.key_type = key_type.parse().unwrap();
        let refused = cluster.define(definition).unwrap_err().to_string();
        assert!(refused.contains(option) && refused.contains("protocol 1"), "{refused}");
    }
    cluster.define(of_type("s", ValueType::Ids)).unwrap();
}

#[test]
fn adoption_writes_schemas_back() {
    let mut cluster = cluster();
    register(&mut cluster, A).unwrap();
    let changes = operator::adopt(&cluster.view, &operator::Present::default()).unwrap();
    let is_schema = |path: &RecordPath| matches!(path, RecordPath::Schema(_));
    assert!(
        changes
            .iter()
            .flat_map(|change| &change.writes)
            .any(|write| is_schema(&write.path))
    );
}
