//! Changes of versioned graphs, edge by edge.
//!
//! - `edges`: adding and removing edges;
//! - `vertices`: the same of vertices;
//! - `repair`: completing edges that a crash has left half there;
//! - `records`: reading and writing many records in few requests.
//!
//! Records are resolved one by one, so that concurrent changes merge per edge: of an edge that is added and removed at the same
//! time, the later change stays.

mod edges;
mod records;
mod repair;
mod vertices;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_graph::{Description, EdgeType, keys};
use fondaco_ids::IdSet;
use fondaco_model::{StoreName, ValueType};
use fondaco_protocol::WireKey;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Map, Value};

pub use edges::EdgeEnds;
pub use repair::RepairCursor;
pub use vertices::VertexChange;

use super::Graph;
use crate::client::Client;
use crate::error::ClientError;
use crate::options::{PutOptions, ReadOptions};
use crate::sets::{SetOptions, What};

/// How many records are written at the same time.
const WRITES_AT_ONCE: usize = 64;

/// How deep properties may nest. Their record has two levels more, and JSON is read to a depth of 127.
const DEPTH_MAX: usize = 100;

/// The value of the record of a member: its being there is all that it says.
const MEMBER: &[u8] = b"1";

/// Changes of a versioned graph, until a deadline.
///
/// A change that fails may be half done. It can be made again: each change says what is to be, and not what is to be different.
#[derive(Debug, Clone)]
pub struct GraphEdit {
    client: Client,
    store: StoreName,
    deadline: Instant,
}

impl Graph {
    /// Changes of this graph. All of them end within this time.
    pub fn edit(&self, timeout: Duration) -> GraphEdit {
        GraphEdit {
            client: self.client.clone(),
            store: self.store.clone(),
            deadline: Instant::now() + timeout,
        }
    }
}

impl GraphEdit {
    /// Declares a type of edges. It is no error if it is there already, with the same symmetry.
    ///
    /// # Errors
    /// An invalid name, a type with the other symmetry, or any reason why the description cannot be written.
    pub async fn declare(&self, edge_type: &str, symmetric: bool) -> Result<(), ClientError> {
        check_name(edge_type)?;
        let name = edge_type.to_owned();
        let described = self.describe(move |description| {
            description.types.entry(name.clone()).or_insert_with(|| EdgeType {
                symmetric,
                ..EdgeType::default()
            });
        });
        match described.await?.types.get(edge_type) {
            Some(declared) if declared.symmetric != symmetric => Err(ClientError::Graph(format!(
                "ERR edges of type {edge_type:?} are {} already: use another name",
                if declared.symmetric { "symmetric" } else { "directed" }
            ))),
            _ => Ok(()),
        }
    }

    /// The description; it is made if nothing was ever written.
    async fn description(&self) -> Result<Description, ClientError> {
        match self.get(vec![keys::DESCRIPTION.to_vec()]).await?.remove(0) {
            Some(value) => described(&value),
            None => self.describe(|_| ()).await,
        }
    }

    /// Changes the description.
    async fn describe(&self, change: impl Fn(&mut Description) + Send + 'static) -> Result<Description, ClientError> {
        let empty = self.empty_description()?;
        let changed = self.client.update(&self.store, keys::DESCRIPTION, move |value| {
            let mut description = match value {
                Some(value) => match described(value) {
                    Ok(description) => description,
                    // It is said below.
                    Err(_) => return Some(value.to_vec()),
                },
                None => empty.clone(),
            };
            change(&mut description);
            serde_json::to_vec(&description).ok()
        });
        described(&self.in_time(changed).await?.unwrap_or_default())
    }

    fn empty_description(&self) -> Result<Description, ClientError> {
        let inner = self.client.inner();
        let snapshot = inner.newest()?;
        let known = snapshot.directory.store(self.store.as_str()).map(|(_, store)| store);
        let known = known.ok_or_else(|| ClientError::UnknownStore {
            store: self.store.as_str().into(),
        })?;
        if known.value_type != ValueType::Graph || known.versioned.is_none() {
            return Err(ClientError::Graph(format!(
                "READONLY {:?} is no versioned graph: create one with fondaco store create --kind versioned --value-type graph",
                self.store
            )));
        }
        Ok(Description {
            vertices: 0,
            next_id: 0,
            is_versioned: true,
            partitions: snapshot.directory.topology().partitions,
            labels: BTreeMap::new(),
            types: BTreeMap::new(),
            properties: vec!["name".into()],
        })
    }

    /// Does the same with all, some at the same time.
    async fn each<T, F: Future<Output = Result<(), ClientError>>>(
        &self,
        all: Vec<T>,
        each: impl Fn(T) -> F,
    ) -> Result<(), ClientError> {
        let done = stream::iter(all.into_iter().map(each)).buffer_unordered(WRITES_AT_ONCE);
        done.try_for_each(|()| std::future::ready(Ok(()))).await
    }

    async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Bytes>>, ClientError> {
        self.find(keys, &What::Values).await
    }

    async fn sets(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Vec<u64>>, ClientError> {
        let sets = self.find(keys, &What::Sets).await?.into_iter();
        let ids = |set: Option<Bytes>| match set {
            Some(set) => Ok(IdSet::parse(&set)?.iter().collect()),
            None => Ok(Vec::new()),
        };
        sets.map(ids).collect()
    }

    async fn find(&self, keys: Vec<Vec<u8>>, what: &What) -> Result<Vec<Option<Bytes>>, ClientError> {
        let keys = keys
            .iter()
            .map(|key| WireKey::new(&self.store, key))
            .collect::<Result<Vec<_>, _>>()?;
        let read = ReadOptions {
            deadline: self.left()?,
            ..ReadOptions::default()
        };
        let options = SetOptions {
            read,
            ..SetOptions::default()
        };
        Ok(self.client.find(keys, what, &options).await?.elements)
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), ClientError> {
        let options = self.writing()?;
        self.client.put(&self.store, key, value, &options).await.map(drop)
    }

    async fn delete(&self, key: &[u8]) -> Result<(), ClientError> {
        let options = self.writing()?;
        self.client.delete(&self.store, key, &options).await.map(drop)
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        tokio::time::timeout(self.left()?, work)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    fn writing(&self) -> Result<PutOptions, ClientError> {
        Ok(PutOptions {
            deadline: self.left()?,
            ..PutOptions::default()
        })
    }

    fn left(&self) -> Result<Duration, ClientError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(late()),
            false => Ok(left),
        }
    }
}

fn check_depth(properties: &Map<String, Value>) -> Result<(), ClientError> {
    fn is_within(value: &Value, depth: usize) -> bool {
        match value {
            Value::Array(values) => depth > 0 && values.iter().all(|value| is_within(value, depth - 1)),
            Value::Object(map) => depth > 0 && map.values().all(|value| is_within(value, depth - 1)),
            _ => true,
        }
    }
    match properties.values().all(|value| is_within(value, DEPTH_MAX)) {
        true => Ok(()),
        false => Err(ClientError::Graph(format!(
            "LIMIT properties nest more than {DEPTH_MAX} deep: nest them less"
        ))),
    }
}

fn add_names(known: &mut Vec<String>, names: &[String]) {
    for name in names {
        if !known.contains(name) {
            known.push(name.clone());
        }
    }
}

fn described(value: &[u8]) -> Result<Description, ClientError> {
    serde_json::from_slice(value)
        .map_err(|error| ClientError::Graph(format!("ERR the description of the graph is damaged: {error}")))
}

fn check_name(name: &str) -> Result<(), ClientError> {
    match Description::is_name(name) {
        true => Ok(()),
        false => Err(ClientError::Graph(format!(
            "ERR {name:?} is no name of a label or an edge type: use up to {} letters, digits and underscores, the first no digit",
            Description::NAME_BYTES_MAX
        ))),
    }
}

fn late() -> ClientError {
    ClientError::Graph(
        "TIMEOUT the change was not done in time, and may be half done: make it again, with fewer edges at a time"
            .into(),
    )
}
