//! A graph's version has the keys and values that its edges make, with any amount of memory and number of threads.

mod refusals;
mod vertices;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fondaco_builder::{
    GraphOptions, GraphReport, OnDuplicate, Progress, Types, UnknownVertices, ValueSelection, build_graph,
};
use fondaco_format::{Version, verify};
use fondaco_graph::Description;
use fondaco_graph::keys::{self, Direction};
use fondaco_model::{PartitionCount, ValueType, slot_of_key};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::Place;

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
