//! Vertices: their ids in the next version, their labels and properties, and those that no file has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fondaco_builder::{GraphReport, KnownIds, OnDuplicate, Progress, UnknownVertices, build_graph};
use fondaco_graph::keys;
use fondaco_graph::{Description, Vertex};
use serde_json::{Value, json};

use super::{ids, options, records};
use crate::generate::{Place, table, write_parquet};

/// The ids of a version, from memory.
struct Former {
    description: Description,
    ids: HashMap<String, u64>,
}

impl KnownIds for Former {
    fn description(&self) -> &Description {
        &self.description
    }

    fn look_up(&self, names: &[Vec<u8>]) -> Result<Vec<Option<u64>>, String> {
        Ok(names
            .iter()
            .map(|name| self.ids.get(str::from_utf8(name).unwrap()).copied())
            .collect())
    }
}

fn former(report: &GraphReport, place: &Place) -> Former {
    Former {
        description: report.description.clone(),
        ids: ids(&records(place)),
    }
}

#[test]
fn names_of_the_former_version_keep_their_ids() {
    let first = Place::new();
    let input = first.write("a.csv", "from,to\nann,bob\nbob,cem\n");
    let report = build_graph(&options(&first, &[input.display().to_string()]), &Progress::new()).unwrap();
    assert_eq!((report.description.next_id, report.new_vertices), (3, 3));
    let former = former(&report, &first);

    let second = Place::new();
    let input = second.write("a.csv", "from,to\ndee,bob\nbob,ann\neve,eve\n");
    let mut options = options(&second, &[input.display().to_string()]);
    options.known = Some(&former);
    let report = build_graph(&options, &Progress::new()).unwrap();
    assert_eq!((report.description.vertices, report.description.next_id), (4, 5));
    assert_eq!((report.new_vertices, report.self_loops), (2, 1));
    let now = ids(&records(&second));
    for name in ["ann", "bob"] {
        assert_eq!(now[name], former.ids[name]);
    }
    let new: BTreeSet<u64> = [now["dee"], now["eve"]].into();
    assert_eq!(new, [3, 4].into());
    assert!(!now.contains_key("cem"));
}

#[test]
fn an_id_that_was_never_given_is_refused() {
    let place = Place::new();
    let input = place.write("a.csv", "from,to\nann,bob\n");
    let report = build_graph(&options(&place, &[input.display().to_string()]), &Progress::new()).unwrap();
    let mut former = former(&report, &place);
    former.description.next_id = 1;
    let other = Place::new();
    let mut options = options(&other, &[input.display().to_string()]);
    options.known = Some(&former);
    let error = build_graph(&options, &Progress::new()).unwrap_err().to_string();
    assert!(
        error.contains("has the id 1, but the graph has given only ids below 1"),
        "{error}"
    );
    let doubtful = Former {
        description: report.description,
        ids: [("ann".to_owned(), 1), ("bob".to_owned(), 1)].into(),
    };
    options.known = Some(&doubtful);
    let error = build_graph(&options, &Progress::new()).unwrap_err().to_string();
    assert!(
        error.contains("\"vertex{1}\" would have the names of two vertices"),
        "{error}"
    );
    assert!(!other.output().exists());
}

/// The vertex with this name.
fn vertex(records: &BTreeMap<Vec<u8>, Vec<u8>>, name: &str) -> Vertex {
    let id = ids(records)[name];
    serde_json::from_slice(&records[&keys::vertex(id)]).unwrap()
}

#[test]
fn vertices_have_labels_and_properties() {
    let place = Place::new();
    let people = place.write(
        "people.jsonl",
        "{\"name\":\"ann\",\"age\":7}\n{\"name\":\"bob\",\"city\":null}\n",
    );
    let towns = place.write("towns.csv", "name,size\noslo,large\n");
    let edges = place.write("edges.csv", "from,to\nann,oslo\nbob,ann\n");
    let mut options = options(&place, &[format!("LIVES_IN={}", edges.display())]);
    options.vertices = vec![
        format!("Person={}", people.display()),
        format!("Town={}", towns.display()),
    ];
    let report = build_graph(&options, &Progress::new()).unwrap();
    assert_eq!(report.description.properties, ["age", "name", "size"]);
    assert_eq!(
        report.description.labels,
        [("Person".to_owned(), 2), ("Town".to_owned(), 1)].into()
    );
    let records = records(&place);
    let ann = vertex(&records, "ann");
    assert_eq!(ann.labels, ["Person"]);
    assert_eq!(Value::Object(ann.properties), json!({"name": "ann", "age": 7}));
    assert_eq!(
        Value::Object(vertex(&records, "bob").properties),
        json!({"name": "bob"})
    );
    assert_eq!(vertex(&records, "oslo").labels, ["Town"]);
    let ids = ids(&records);
    let labelled = records.iter().filter(|(key, _)| key.starts_with(b"label:Person{"));
    let people: BTreeSet<u64> = labelled
        .flat_map(|(_, value)| fondaco_ids::IdSet::parse(value).unwrap().iter().collect::<Vec<_>>())
        .collect();
    assert_eq!(people, [ids["ann"], ids["bob"]].into());
}

#[test]
fn a_column_of_numbers_names_vertices_by_numbers() {
    let place = Place::new();
    let from = arrow_array::Int64Array::from(vec![7, 8]);
    let to = arrow_array::StringArray::from(vec!["x", "7"]);
    let batch = table(vec![
        ("from", std::sync::Arc::new(from)),
        ("to", std::sync::Arc::new(to)),
    ]);
    write_parquet(&place.input("e.parquet"), &batch, 1);
    let input = place.input("e.parquet").display().to_string();
    let report = build_graph(&options(&place, &[input]), &Progress::new()).unwrap();
    assert_eq!((report.description.vertices, report.edges), (3, 2));
    let records = records(&place);
    assert_eq!(vertex(&records, "7").properties["name"], json!(7));
    assert_eq!(vertex(&records, "x").properties["name"], json!("x"));
}

#[test]
fn unknown_vertices_fail_or_are_added_or_skipped() {
    let build = |unknown| {
        let place = Place::new();
        let people = place.write("people.csv", "name\nann\nbob\n");
        let edges = place.write("edges.csv", "from,to\nann,bob\nann,zoe\nyan,bob\n");
        let mut options = options(&place, &[edges.display().to_string()]);
        options.vertices = vec![people.display().to_string()];
        options.unknown_vertices = unknown;
        (build_graph(&options, &Progress::new()), place)
    };
    let (result, place) = build(UnknownVertices::Fail);
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("2 name(s) in edges are in no file of vertices, the first is \"zoe\""),
        "{error}"
    );
    assert!(
        error.contains("edges.csv\" row 2") && error.contains("--unknown-vertices add"),
        "{error}"
    );
    assert!(!place.output().exists());

    let report = build(UnknownVertices::Add).0.unwrap();
    assert_eq!(
        (report.description.vertices, report.edges, report.unknown_vertices),
        (4, 3, 2)
    );
    let report = build(UnknownVertices::Skip).0.unwrap();
    assert_eq!((report.description.vertices, report.edges), (2, 1));
    assert_eq!(
        (report.unknown_vertices, report.skipped_edges, report.duplicate_edges),
        (2, 2, 0)
    );
}

#[test]
fn a_duplicate_vertex_is_the_first_or_the_last_row() {
    for (on_duplicate, age) in [(OnDuplicate::First, 1), (OnDuplicate::Last, 3)] {
        let place = Place::new();
        let people = place.write("people.csv", "name,age\nann,1\nann,2\nann,3\n");
        let edges = place.write("edges.csv", "from,to\nann,ann\n");
        let mut options = options(&place, &[edges.display().to_string()]);
        options.vertices = vec![people.display().to_string()];
        options.build.on_duplicate = on_duplicate;
        let report = build_graph(&options, &Progress::new()).unwrap();
        assert_eq!(
            (report.duplicate_vertices, report.self_loops, report.build.duplicates),
            (2, 1, 2)
        );
        assert_eq!(vertex(&records(&place), "ann").properties["age"], json!(age));
    }
}
