//! A graph in memory, laid out as a store has it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_graph::keys::{self, Direction};
use fondaco_graph::query::{Limits, Prepared, QueryResult, Value};
use fondaco_graph::{Ask, Description, EdgeType, Selection, Source, Vertex};
use fondaco_ids::{Budget, IdSet, SetAnswer, SetQuery, encode};
use fondaco_model::{PartitionCount, slot_of_wire_key};
use serde_json::json;

/// A graph in memory.
#[derive(Debug)]
pub struct Memory {
    values: HashMap<Vec<u8>, Bytes>,
    pub description: Description,
    requests: AtomicU64,
}

/// The parts of a graph: vertices by id with labels and properties, and edges by type.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    pub vertices: Vec<(Vec<&'static str>, serde_json::Value)>,
    /// Name, whether symmetric, and edges with their properties.
    pub types: Vec<(&'static str, bool, Vec<EdgeOf>)>,
}

/// From where an edge leads, where to, and its properties.
pub type EdgeOf = (u64, u64, Option<serde_json::Value>);

impl Memory {
    pub fn new(parts: &Parts) -> Self {
        let partitions = PartitionCount::try_from(4).unwrap();
        let tags = keys::tags(partitions);
        let mut values = HashMap::new();
        let mut sets: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
        let mut description = Description {
            is_versioned: false,
            vertices: parts.vertices.len() as u64,
            next_id: parts.vertices.len() as u64,
            partitions,
            labels: BTreeMap::new(),
            types: BTreeMap::new(),
            properties: vec!["name".into()],
        };
        for (id, (labels, properties)) in (0..).zip(&parts.vertices) {
            let vertex = Vertex {
                labels: labels.iter().map(|&label| label.to_owned()).collect(),
                properties: properties.as_object().unwrap().clone(),
            };
            let key = keys::vertex(id);
            let slot = slot_of_wire_key(&[b"g:", &key[..]].concat());
            let tag = &tags[partitions.partition_of(slot).get() as usize];
            for &label in labels.iter().chain([&""]) {
                sets.entry(keys::label(tag, label)).or_default().insert(id);
                if !label.is_empty() {
                    *description.labels.entry(label.into()).or_default() += 1;
                }
            }
            values.insert(key, serde_json::to_vec(&vertex).unwrap().into());
            if let Some(name) = properties["name"].as_str() {
                values.insert(keys::id(name.as_bytes()), id.to_string().into());
            }
        }
        for (name, symmetric, edges) in &parts.types {
            let of = description.types.entry((*name).to_owned()).or_insert(EdgeType {
                symmetric: *symmetric,
                ..EdgeType::default()
            });
            for (from, to, properties) in edges {
                sets.entry(keys::neighbours(name, Direction::Out, *from))
                    .or_default()
                    .insert(*to);
                let back = if *symmetric { Direction::Out } else { Direction::In };
                sets.entry(keys::neighbours(name, back, *to)).or_default().insert(*from);
                if let Some(properties) = properties {
                    of.properties = true;
                    let (one, other) = if *symmetric {
                        (from.min(to), from.max(to))
                    } else {
                        (from, to)
                    };
                    values.insert(keys::edge(name, *one, *other), properties.to_string().into());
                }
                of.edges += 1;
            }
        }
        for (key, ids) in sets {
            let ids: Vec<u64> = ids.into_iter().collect();
            values.insert(key, encode(&ids).unwrap().into());
        }
        Self {
            values,
            description,
            requests: AtomicU64::new(0),
        }
    }

    /// The answer to a query.
    pub fn ask(&self, text: &str) -> Result<QueryResult, String> {
        self.ask_with(text, &BTreeMap::new(), &limits())
    }

    pub fn ask_with(
        &self,
        text: &str,
        parameters: &BTreeMap<String, Value>,
        limits: &Limits,
    ) -> Result<QueryResult, String> {
        let prepared = Prepared::new(text)?;
        wait_for(prepared.run(self, &self.description, parameters, limits))
    }

    fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.values.get(key).cloned()
    }
}

pub fn limits() -> Limits {
    Limits {
        deadline: Instant::now() + Duration::from_secs(60),
        rows_max: 100_000,
        expanded_max: 1_000_000,
        may_go_on: Box::new(|| true),
        partial: false,
    }
}

impl Source for Memory {
    async fn values(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, String> {
        self.requests.fetch_add(1, Relaxed);
        Ok(keys.iter().map(|key| self.get(key)).collect())
    }

    async fn sets(&self, keys: Vec<Bytes>, _: Ask) -> Result<Vec<Option<Bytes>>, String> {
        self.values(keys).await
    }

    async fn query(&self, keys: Vec<Bytes>, query: SetQuery, _: Ask) -> Result<SetAnswer, String> {
        let values = self.values(keys).await?;
        let sets: Vec<Option<IdSet<'_>>> = values
            .iter()
            .map(|value| value.as_ref().map(|value| IdSet::parse(value).unwrap()))
            .collect();
        let partial = query
            .computation()
            .apply_for_merge(&sets, &mut Budget::of_ids(1_000_000))
            .unwrap();
        Ok(query.merge(&partial, &mut Budget::of_ids(1_000_000)).unwrap())
    }

    async fn select(&self, ids: &[u64], selection: &Selection) -> Result<Vec<Option<Bytes>>, String> {
        let sent = Selection::parse(&selection.to_bytes()).unwrap();
        let record = |id: &u64| {
            self.get(&keys::vertex(*id))
                .and_then(|record| sent.apply(&record).unwrap())
        };
        Ok(ids.iter().map(record).collect())
    }

    fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// The result of a future that never waits.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Nothing;
    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    let waker = Waker::from(Arc::new(Nothing));
    match pin!(future).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a graph in memory never waits"),
    }
}

/// People and companies: a symmetric type, and two directed ones.
pub fn people() -> Memory {
    let person = |name: &str, age: i64| (vec!["Person"], json!({"name": name, "age": age}));
    Memory::new(&Parts {
        vertices: vec![
            person("ann", 30),
            person("bob", 40),
            person("cid", 50),
            person("dan", 20),
            person("eve", 35),
            (vec!["Company"], json!({"name": "acme", "size": 2.5})),
            (vec!["Company", "Old"], json!({"name": "corp"})),
        ],
        types: vec![
            (
                "KNOWS",
                true,
                vec![
                    (0, 1, Some(json!({"since": 2001}))),
                    (1, 2, Some(json!({"since": 2010}))),
                    (2, 3, None),
                    (0, 4, None),
                    (4, 4, None),
                ],
            ),
            (
                "FOLLOWS",
                false,
                vec![(0, 1, None), (1, 0, None), (1, 2, None), (3, 3, None), (3, 0, None)],
            ),
            ("WORKS_AT", false, vec![(0, 5, None), (1, 5, None), (2, 6, None)]),
        ],
    })
}
