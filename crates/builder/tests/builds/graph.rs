//! A graph's version has the keys and values that its edges make, with any amount of memory and number of threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::generate::{Place, table, write_parquet};
use fondaco_builder::{
    BuildError, GraphOptions, GraphReport, KnownIds, OnDuplicate, Progress, Types, UnknownVertices, ValueSelection,
    build_graph,
};
use fondaco_format::{Version, verify};
use fondaco_graph::keys::{self, Direction};
use fondaco_graph::{Description, Vertex};
use fondaco_model::{PartitionCount, ValueType, slot_of_key};
use proptest::prelude::*;
use serde_json::{Value, json};

/// An edge: the number of its type, the names of its ends, and its weight.
type Edge = (usize, u32, u32, u32);

const TYPES: [&str; 4] = ["FOLLOWS", "KNOWS", "LIKES", "MARRIED"];
const SYMMETRIC: [bool; 4] = [false, true, false, true];
const INDEXED: [bool; 4] = [false, false, true, true];

fn named(chosen: [bool; 4]) -> Types {
    let named = TYPES.iter().zip(chosen).filter(|(_, chosen)| *chosen);
    Types::Named(named.map(|(name, _)| (*name).to_owned()).collect())
}

fn options<'a>(place: &Place, inputs: &[String]) -> GraphOptions<'a> {
    let mut build = place.options();
    build.store = "social".parse().unwrap();
    build.inputs = inputs.to_vec();
    build.key = vec!["from".to_owned(), "to".to_owned()];
    build.value = ValueSelection::Columns(Vec::new());
    GraphOptions {
        build,
        edge_type: "EDGE".to_owned(),
        symmetric: Types::None,
        indexed: Types::None,
        vertices: Vec::new(),
        vertex_name: "name".to_owned(),
        unknown_vertices: UnknownVertices::Fail,
        known: None,
    }
}

/// Writes the edges of each type to files of their own, and returns these as inputs.
fn write_edges(place: &Place, edges: &[Edge]) -> Vec<String> {
    let mut inputs = Vec::new();
    for (number, name) in TYPES.iter().enumerate() {
        let of_type: Vec<&Edge> = edges.iter().filter(|edge| edge.0 == number).collect();
        let halves = of_type.split_at(of_type.len() / 2);
        for (half, edges) in [halves.0, halves.1].into_iter().enumerate() {
            let rows: String = edges
                .iter()
                .map(|(_, from, to, weight)| format!("n{from},n{to},{weight}\n"))
                .collect();
            let path = place.write(&format!("{name}-{half}.csv"), format!("from,to,weight\n{rows}"));
            inputs.push(format!("{name}={}", path.display()));
        }
    }
    inputs
}

fn records(place: &Place) -> BTreeMap<Vec<u8>, Vec<u8>> {
    verify(&place.output()).unwrap();
    let version = Version::open(&place.output()).unwrap();
    assert_eq!(version.manifest().value_type, ValueType::Graph);
    let records: BTreeMap<_, _> = version.scan().map(Result::unwrap).collect();
    assert_eq!(version.records(), records.len() as u64);
    records
}

/// The ids of all names.
fn ids(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> HashMap<String, u64> {
    let ids = records.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(b"id:")?;
        let id = str::from_utf8(value).unwrap().parse().unwrap();
        Some((String::from_utf8(name.to_vec()).unwrap(), id))
    });
    ids.collect()
}

fn set(ids: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let ids: BTreeSet<u64> = ids.into_iter().collect();
    fondaco_ids::encode(&Vec::from_iter(ids)).unwrap()
}

/// All records that these edges make, given the ids of the names.
fn expected(
    edges: &[Edge],
    ids: &HashMap<String, u64>,
    partitions: PartitionCount,
    on_duplicate: OnDuplicate,
    weighted: bool,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let tags = keys::tags(partitions);
    let tag_of = |key: &[u8]| {
        let slot = slot_of_key(&"social".parse().unwrap(), key);
        &tags[partitions.partition_of(slot).get() as usize]
    };
    let mut records = BTreeMap::new();
    let mut sets: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
    let mut counted: [BTreeSet<(u64, u64)>; 4] = Default::default();
    for &(number, from, to, weight) in edges {
        let name = TYPES[number];
        let (from, to) = (ids[&format!("n{from}")], ids[&format!("n{to}")]);
        let (first, second) = match SYMMETRIC[number] {
            true => (from.min(to), from.max(to)),
            false => (from, to),
        };
        counted[number].insert((first, second));
        let mut add = |from, to| {
            let key = keys::neighbours(name, Direction::Out, from);
            if INDEXED[number] {
                sets.entry(keys::index(name, tag_of(&key), to))
                    .or_default()
                    .insert(from);
            }
            sets.entry(key).or_default().insert(to);
        };
        add(from, to);
        if SYMMETRIC[number] {
            add(to, from);
        } else {
            let key = keys::neighbours(name, Direction::In, to);
            sets.entry(key).or_default().insert(from);
        }
        if weighted {
            let value = format!("{{\"weight\":{weight}}}").into_bytes();
            let key = keys::edge(name, first, second);
            if on_duplicate == OnDuplicate::Last || !records.contains_key(&key) {
                records.insert(key, value);
            }
        }
    }
    for (name, &id) in ids {
        records.insert(keys::id(name.as_bytes()), id.to_string().into_bytes());
        let vertex = json!({"properties": {"name": name}}).to_string();
        records.insert(keys::vertex(id), vertex.into_bytes());
        let tag = tag_of(&keys::vertex(id));
        sets.entry(keys::label(tag, "")).or_default().insert(id);
    }
    records.extend(sets.into_iter().map(|(key, ids)| (key, set(ids))));
    let types: serde_json::Map<String, Value> = TYPES
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let described = json!({
                "symmetric": SYMMETRIC[number], "indexed": INDEXED[number], "properties": weighted,
                "edges": counted[number].len(),
            });
            ((*name).to_owned(), described)
        })
        .collect();
    let description: Description = serde_json::from_value(json!({
        "vertices": ids.len(), "next_id": ids.len(), "partitions": partitions.get(), "labels": {}, "types": types,
        "properties": if weighted { vec!["name", "weight"] } else { vec!["name"] },
    }))
    .unwrap();
    records.insert(keys::DESCRIPTION.to_vec(), serde_json::to_vec(&description).unwrap());
    records
}

fn shown(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<(String, &[u8])> {
    let shown = records
        .iter()
        .map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), &value[..]));
    shown.collect()
}

fn check_counts(report: &GraphReport, edges: &[Edge]) {
    let distinct: BTreeSet<(usize, u32, u32)> = edges
        .iter()
        .map(|&(number, from, to, _)| match SYMMETRIC[number] {
            true => (number, from.min(to), from.max(to)),
            false => (number, from, to),
        })
        .collect();
    assert_eq!(report.edges, distinct.len() as u64);
    assert_eq!(report.duplicate_edges, (edges.len() - distinct.len()) as u64);
    let loops = distinct.iter().filter(|(_, from, to)| from == to).count();
    assert_eq!(report.self_loops, loops as u64);
    assert_eq!(report.build.rows, edges.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_equals_a_model(
        edges in prop::collection::vec((0..4usize, 0..60u32, 0..60u32, 0..5u32), 1..800),
        memory_bytes in (20..23u32).prop_map(|bits| 1 << bits),
        threads in 1..5usize,
        partition_bits in 0..9u32,
        on_duplicate in prop::sample::select(vec![OnDuplicate::First, OnDuplicate::Last]),
        weighted: bool,
    ) {
        let place = Place::new();
        let inputs = write_edges(&place, &edges);
        let mut options = options(&place, &inputs);
        options.symmetric = named(SYMMETRIC);
        options.indexed = named(INDEXED);
        options.build.memory_bytes = memory_bytes;
        options.build.threads = threads;
        options.build.partitions = (1 << partition_bits).try_into().unwrap();
        options.build.on_duplicate = on_duplicate;
        if weighted {
            options.build.value = ValueSelection::Columns(vec!["weight".to_owned()]);
        }
        let report = build_graph(&options, &Progress::new()).unwrap();
        check_counts(&report, &edges);
        let records = records(&place);
        let ids = ids(&records);
        let given: BTreeSet<u64> = ids.values().copied().collect();
        prop_assert_eq!(given, (0..ids.len() as u64).collect::<BTreeSet<_>>());
        let expected = expected(&edges, &ids, options.build.partitions, on_duplicate, weighted);
        prop_assert_eq!(shown(&records), shown(&expected));
    }
}

/// 100,000 edges, half of them of one vertex, through 1 MiB of memory.
fn hub() -> Vec<Edge> {
    let mut state = 1_u64;
    let mut random = |end: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % end) as u32
    };
    (0..100_000)
        .map(|number| match number % 2 {
            0 => (number % 4, 7, random(100_000), 0),
            _ => (number % 4, random(50_000), random(50_000), 0),
        })
        .collect()
}

#[test]
fn a_hub_that_does_not_fit_into_memory_is_built_the_same_with_any_memory_and_threads() {
    let edges = hub();
    let mut versions = Vec::new();
    for (memory_bytes, threads) in [(1 << 20, 1), (1 << 20, 4), (256 << 20, 2)] {
        let place = Place::new();
        let inputs = write_edges(&place, &edges);
        let mut options = options(&place, &inputs);
        options.symmetric = named(SYMMETRIC);
        options.indexed = named(INDEXED);
        options.build.memory_bytes = memory_bytes;
        options.build.threads = threads;
        let report = build_graph(&options, &Progress::new()).unwrap();
        assert_eq!(report.build.spilled_bytes > 0, memory_bytes == 1 << 20);
        check_counts(&report, &edges);
        let version = Version::open(&place.output()).unwrap();
        let chunks = version.manifest().chunks.clone();
        if versions.is_empty() {
            let records = records(&place);
            let ids = ids(&records);
            let expected = expected(&edges, &ids, options.build.partitions, OnDuplicate::Fail, false);
            assert!(records == expected);
        }
        versions.push(chunks);
    }
    assert_eq!(versions[0], versions[1]);
    assert_eq!(versions[0], versions[2]);
}

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

/// The error of a build that must leave nothing.
fn refused(change: impl FnOnce(&Place, &mut GraphOptions<'_>)) -> String {
    let place = Place::new();
    let edges = place.write("edges.csv", "from,to,weight\nann,bob,1\nann,bob,2\n");
    let mut options = options(&place, &[edges.display().to_string()]);
    change(&place, &mut options);
    let error = build_graph(&options, &Progress::new()).map(drop).unwrap_err();
    assert!(!place.output().exists(), "a failed build leaves nothing");
    error.to_string()
}

#[test]
fn refusals_name_the_mistake_and_the_remedy() {
    let vertices = |content: &'static str| {
        move |place: &Place, options: &mut GraphOptions<'_>| {
            options.vertices = vec![format!("Person={}", place.write("v.csv", content).display())];
        }
    };
    for (error, parts) in [
        (
            refused(|_, options| options.edge_type = "a-b".to_owned()),
            &["invalid edge type \"a-b\"", "letters"][..],
        ),
        (
            refused(|_, options| options.symmetric = Types::Named(vec!["KNOWS".to_owned()])),
            &["--symmetric names the edge type \"KNOWS\"", "\"EDGE\""],
        ),
        (
            refused(|_, options| options.build.key[1] = "too".to_owned()),
            &["no column \"too\"", "did you mean \"to\""],
        ),
        (
            refused(|_, options| options.build.value = ValueSelection::Columns(vec!["weight".to_owned()])),
            &[
                "an edge of type EDGE with properties occurs twice",
                "row 1",
                "row 2",
                "--on-duplicate first",
            ],
        ),
        (
            refused(vertices("name\nann\nbob\nann\n")),
            &["vertex \"ann\" occurs twice", "row 1", "row 3"],
        ),
        (
            refused(vertices("name\nann\n\"\"\n")),
            &["the name of the vertex is empty"],
        ),
        (
            refused(|place, options| {
                vertices("id,name\nann,x\nbob,y\n")(place, options);
                options.vertex_name = "id".to_owned();
            }),
            &["vertices have a column \"name\"", "\"id\"", "--vertex-name name"],
        ),
        (
            refused(|place, options| {
                options.vertices = vec![format!("1st={}", place.write("v.csv", "name\n").display())];
            }),
            &["invalid label \"1st\""],
        ),
        (
            refused(|place, options| {
                options.build.inputs = vec![place.write("e.csv", "from,to\nann,\n").display().to_string()];
            }),
            &[
                "1 bad row(s)",
                "row 1: the name that the edge leads to is empty: \"ann\", \"\"",
            ],
        ),
        (
            refused(|place, options| {
                options.build.inputs = vec![place.write("e.csv", "from,to\n").display().to_string()];
            }),
            &["the input has no rows"],
        ),
    ] {
        for part in parts {
            assert!(error.contains(part), "{part:?} in {error}");
        }
    }
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

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let place = Place::new();
    let edges = place.write("edges.csv", "from,to\nann,bob\nbob,ann\n");
    let mut options = options(&place, &[edges.display().to_string()]);
    options.symmetric = Types::All;
    let built = build_graph(&options, &Progress::new()).unwrap();
    std::fs::remove_dir_all(place.output()).unwrap();
    options.build.dry_run = true;
    let report = build_graph(&options, &Progress::new()).unwrap();
    assert_eq!((report.edges, report.duplicate_edges), (1, 1));
    assert_eq!(report.build.bytes, built.build.bytes);
    assert_eq!(report.build.records, built.build.records);
    assert!(report.build.manifest.is_none() && !place.output().exists());
}

#[test]
fn an_output_in_use_is_refused_before_the_input_is_read() {
    let place = Place::new();
    let edges = place.write("edges.csv", "from,to\nann,bob\n");
    std::fs::create_dir(place.output()).unwrap();
    std::fs::write(place.output().join("x"), "").unwrap();
    let result = build_graph(&options(&place, &[edges.display().to_string()]), &Progress::new());
    assert!(matches!(result, Err(BuildError::OutputNotEmpty { .. })));
}
