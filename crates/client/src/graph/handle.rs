//! Graphs, as applications ask them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_graph::keys;
use fondaco_graph::query::{Limits, Prepared, QueryResult, Value};
use fondaco_graph::{Description, Source};
use fondaco_ids::{Budget, SetAnswer, SetQuery};
use fondaco_model::StoreName;
use fondaco_protocol::WireKey;

use super::{GraphSource, Keys, in_one_version};
use crate::client::Client;
use crate::error::ClientError;
use crate::options::ReadOptions;
use crate::sets::{Computed, SetOptions, What};

/// A graph of the cluster.
#[derive(Debug, Clone)]
pub struct Graph {
    pub(super) client: Client,
    pub(super) store: StoreName,
}

/// How much a query of a graph may do.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphOptions {
    /// How long it may take; 5 s by default.
    pub timeout: Duration,
    /// The most rows; 100 000 by default.
    pub rows_max: usize,
    /// The most edges that it follows; 10 million by default.
    pub expanded_max: u64,
    /// Whether a query that ends at a limit has the rows so far as its answer.
    pub partial: bool,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            rows_max: 100_000,
            expanded_max: 10_000_000,
            partial: false,
        }
    }
}

impl Client {
    /// A graph, by the name of its store.
    pub fn graph(&self, store: StoreName) -> Graph {
        Graph {
            client: self.clone(),
            store,
        }
    }
}

impl Graph {
    /// Answers a query in the subset of openCypher.
    ///
    /// # Errors
    /// [`ClientError::Graph`]: the query is not supported, over a limit, or the graph cannot be read.
    pub async fn query(
        &self,
        text: &str,
        parameters: &BTreeMap<String, Value>,
        options: &GraphOptions,
    ) -> Result<QueryResult, ClientError> {
        let prepared = Prepared::new(text).map_err(ClientError::Graph)?;
        let deadline = Instant::now() + options.timeout;
        let attempt = || self.attempt(&prepared, parameters, options, deadline);
        in_one_version(attempt).await.map_err(ClientError::Graph)
    }

    async fn attempt(
        &self,
        prepared: &Prepared,
        parameters: &BTreeMap<String, Value>,
        options: &GraphOptions,
        deadline: Instant,
    ) -> Result<QueryResult, String> {
        let keys = ClientKeys {
            client: self.client.clone(),
            store: self.store.clone(),
            deadline,
        };
        let source = GraphSource::new(keys, None);
        let description = description(&source, &self.store).await?;
        let limits = Limits {
            deadline,
            rows_max: options.rows_max,
            expanded_max: options.expanded_max,
            may_go_on: Box::new(|| true),
            partial: options.partial,
        };
        prepared.run(&source, &description, parameters, &limits).await
    }
}

/// The description of a graph.
///
/// # Errors
/// The error to answer with: it cannot be read.
pub async fn description(source: &impl Source, store: &StoreName) -> Result<Description, String> {
    let read = source.values(vec![Bytes::from_static(keys::DESCRIPTION)]).await?;
    let value = read.into_iter().next().flatten();
    let value = value.ok_or_else(|| {
        format!(
            "ERR store {store:?} has no description of a graph: push it with --edges, or declare a type of edges with \
             FONDACO.EDGE DECLARE"
        )
    })?;
    serde_json::from_slice(&value).map_err(|error| format!("ERR the description of graph {store:?}: {error}"))
}

/// Keys of one store, through the client alone.
struct ClientKeys {
    client: Client,
    store: StoreName,
    deadline: Instant,
}

impl Keys for ClientKeys {
    async fn find(&self, keys: &[Bytes], what: &What, asking: &ReadOptions) -> Result<Computed, String> {
        let found = async {
            let keys: Result<Vec<WireKey>, _> = keys.iter().map(|key| WireKey::new(&self.store, key)).collect();
            let options = SetOptions {
                read: ReadOptions {
                    deadline: self.deadline.saturating_duration_since(Instant::now()),
                    ..asking.clone()
                },
                ..SetOptions::default()
            };
            self.client.find(keys?, what, &options).await
        };
        found
            .await
            .map_err(|error: ClientError| format!("{} {error}", error.code()))
    }

    fn merge(&self, query: &SetQuery, elements: &[Option<Bytes>]) -> Result<SetAnswer, String> {
        let ids_max = SetOptions::default().ids_max;
        query
            .merge(elements, &mut Budget::of_ids(ids_max))
            .map_err(|error| format!("ERR {error}"))
    }
}
