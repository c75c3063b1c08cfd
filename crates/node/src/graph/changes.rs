//! Changes of versioned graphs, made by the client library on the threads for computations; and what this process then forgets.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::StoreId;
use fondaco_client::graph::{EdgeEnds, RepairCursor, VertexChange};
use fondaco_graph::keys::Direction;
use fondaco_graph::{Ask, Relation, Source};
use fondaco_ids::{SetAnswer, SetQuery};
use serde_json::{Map, Value};

use super::Graph;
use crate::compute::Stop;
use crate::forward::refusal as refused;
use crate::server::ServerState;

/// The changes to a graph.
#[derive(Debug)]
pub(crate) enum Change {
    /// A type of edges.
    Declare { edge_type: String, symmetric: bool },
    /// Edges, with these properties.
    AddEdges {
        edge_type: String,
        edges: Vec<(Bytes, Bytes)>,
        properties: Map<String, Value>,
    },
    /// No such edges.
    RemoveEdges {
        edge_type: String,
        edges: Vec<(Bytes, Bytes)>,
    },
    /// Vertices, with these labels and properties.
    PutVertices { names: Vec<Bytes>, change: VertexChange },
    /// No such vertices, and none of their edges.
    RemoveVertices { names: Vec<Bytes> },
    /// Mirrors of edges as the edges are, for some vertices.
    Repair { cursor: RepairCursor },
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The changes that were asked for.
    All,
    /// How many of them were there.
    Number(u64),
    /// Where to go on, and how many mirrors were wrong.
    Repaired(Option<RepairCursor>, u64),
}

/// Makes a change.
///
/// # Errors
/// The error to answer with. A part of the change may be made.
pub(crate) async fn change(
    shared: Arc<ServerState>,
    store: StoreId,
    change: &Change,
    stop: Stop,
) -> Result<Changed, String> {
    let catalog = Arc::clone(&shared.catalog.load());
    let name = catalog.stores().iter().find(|known| known.id == store);
    let name = name.ok_or("NOSTORE the graph was dropped meanwhile")?.name.clone();
    let graph = shared.compute.client(&shared).map_err(refused)?.graph(name);
    // It ends a little earlier, to say itself that a part may be done.
    let edit = graph.edit(stop.left() * 19 / 20);
    let forget = async |edge_type: &str, ends: &[EdgeEnds]| forget(&shared, store, edge_type, ends, &stop).await;
    match change {
        Change::Declare { edge_type, symmetric } => {
            edit.declare(edge_type, *symmetric).await.map_err(refused)?;
        }
        Change::AddEdges {
            edge_type,
            edges,
            properties,
        } => {
            let ends = edit.add_edges(edge_type, edges, properties).await.map_err(refused)?;
            forget(edge_type, &ends).await;
        }
        Change::RemoveEdges { edge_type, edges } => {
            let ends = edit.remove_edges(edge_type, edges).await.map_err(refused)?;
            forget(edge_type, &ends).await;
        }
        Change::PutVertices { names, change } => {
            edit.put_vertices(names, change).await.map_err(refused)?;
        }
        Change::RemoveVertices { names } => {
            let mut number = 0;
            for name in names {
                let Some(removed) = edit.remove_vertex(name).await.map_err(refused)? else {
                    continue;
                };
                number += 1;
                for (edge_type, ends) in &removed {
                    forget(edge_type, ends).await;
                }
            }
            return Ok(Changed::Number(number));
        }
        Change::Repair { cursor } => {
            let (next, repaired) = edit.repair(*cursor).await.map_err(refused)?;
            return Ok(Changed::Repaired(next, repaired));
        }
    }
    Ok(Changed::All)
}

/// Forgets the networks that edges are in: those of their ends, and of vertices with an edge to them. Where these cannot be found
/// out, networks become too old by themselves.
async fn forget(shared: &Arc<ServerState>, store: StoreId, edge_type: &str, ends: &[EdgeEnds], stop: &Stop) {
    let networks = &shared.graphs.networks;
    if ends.is_empty() || networks.is_idle() {
        return;
    }
    let found = async {
        let catalog = Arc::clone(&shared.catalog.load());
        let graph = Graph::open(shared, &catalog, store, stop).await?;
        for direction in [Direction::Out, Direction::In] {
            let relation = Relation::of(&graph.description, edge_type, direction)?;
            let is_first = |end: &EdgeEnds| match (relation.edge_type.symmetric, direction) {
                (true, _) => vec![end.from, end.to],
                (false, Direction::Out) => vec![end.from],
                (false, Direction::In) => vec![end.to],
            };
            let first: BTreeSet<u64> = ends.iter().flat_map(is_first).collect();
            networks.forget(store, edge_type, direction, first.iter().copied());
            let keys = first.iter().map(|&id| relation.reversed().key(id)).collect();
            let before = graph.source.query(keys, SetQuery::Union, Ask::NonUnion).await?;
            if let SetAnswer::Ids(before) = before {
                networks.forget(store, edge_type, direction, before.into_iter());
            }
        }
        Ok::<_, String>(())
    };
    if let Err(error) = found.await {
        tracing::debug!(error, "networks of a changed graph are not forgotten, and age");
    }
}
