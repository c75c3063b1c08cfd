//! One question to a graph, and its answer.

use std::time::Instant;

use bytes::Bytes;
use fondaco_graph::keys::{self, Direction};
use fondaco_graph::{Ask, Relation, Selection, Source, Vertex, Way, common, distances, has_common, shortest_path};
use fondaco_ids::{IdSet, SetAnswer, SetQuery};

use super::Graph;

/// A question about vertices, and edges of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) operation: Operation,
    pub(crate) edge_type: String,
    pub(crate) direction: Direction,
    /// The names of vertices, or their ids as text.
    pub(crate) vertices: Vec<Bytes>,
    /// Whether vertices are given, and answered, as ids.
    pub(crate) as_ids: bool,
    /// The most vertices of an answer.
    pub(crate) limit: usize,
    /// Whether the answer is how it was found.
    pub(crate) explain: bool,
}

/// The operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// The vertices one edge away.
    Neighbours,
    /// The vertices one, and two edges away.
    Network,
    /// The numbers of these.
    Size,
    /// The distances from the first vertex to each other.
    Distances,
    /// The vertices of a shortest path between two.
    Path,
    /// The vertices that both have edges to.
    Common,
    /// Whether there are such.
    HasCommon,
}

impl Operation {
    /// All, with their names.
    pub(crate) const ALL: [(&'static str, Self); 7] = [
        ("NEIGHBOURS", Self::Neighbours),
        ("NETWORK", Self::Network),
        ("SIZE", Self::Size),
        ("DISTANCES", Self::Distances),
        ("PATH", Self::Path),
        ("COMMON", Self::Common),
        ("HASCOMMON", Self::HasCommon),
    ];

    /// How many vertices it is about, at least and at most.
    pub(crate) fn vertices(self) -> (usize, usize) {
        match self {
            Self::Neighbours | Self::Network | Self::Size => (1, 1),
            Self::Distances => (2, usize::MAX),
            Self::Path | Self::Common | Self::HasCommon => (2, 2),
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answered {
    /// Vertices; `None` if there is no path.
    Vertices(Option<Listed>),
    /// Two lists of vertices.
    Two([Listed; 2]),
    /// Numbers; `None` beyond three edges, and of unknown vertices.
    Numbers(Vec<Option<u64>>),
    /// Yes or no.
    Flag(bool),
    /// How the answer was found.
    Lines(Vec<String>),
}

/// Vertices as they are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listed {
    /// By their ids.
    Ids(Vec<u64>),
    /// By their names.
    Names(Vec<Bytes>),
}

/// Carries a question out.
///
/// # Errors
/// The error to answer with.
pub(super) async fn carry_out(graph: &Graph, question: &Question) -> Result<Answered, String> {
    let began = Instant::now();
    let mut lines = Vec::new();
    let answer = answer(graph, question, &mut lines).await?;
    if !question.explain {
        return Ok(answer);
    }
    let requests = graph.source.requests();
    let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
    lines.push(format!("{requests} requests to nodes, {milliseconds:.3} ms"));
    Ok(Answered::Lines(lines))
}

async fn answer(graph: &Graph, question: &Question, lines: &mut Vec<String>) -> Result<Answered, String> {
    let source = &*graph.source;
    let relation = Relation::of(&graph.description, &question.edge_type, question.direction)?;
    let ids = graph.ids(question).await?;
    let known = |at: usize| ids[at].ok_or_else(|| no_vertex(&question.vertices[at]));
    let first = known(0)?;
    let mut network_of = async || {
        let (network, was_kept) = graph.network(relation, first).await?;
        let (one, two) = (network.first().len(), network.second().len());
        lines.push(match was_kept {
            true => format!("network of the first vertex, from the cache: {one} and {two} vertices"),
            false => format!(
                "network of the first vertex, computed by nodes (synchronous union, one group): {one} and {two} vertices"
            ),
        });
        Ok::<_, String>(network)
    };
    Ok(match question.operation {
        Operation::Neighbours => {
            let keys = vec![relation.key(first)];
            let found = source.query(keys, SetQuery::Union, Ask::NonUnion).await?;
            let found = if let SetAnswer::Ids(ids) = found {
                ids
            } else {
                Vec::new()
            };
            lines.push(format!("one list of {} vertices (one node)", found.len()));
            Answered::Vertices(Some(graph.listed(limited(found, question)?, question).await?))
        }
        Operation::Size => {
            let network = network_of().await?;
            Answered::Numbers(vec![
                Some(network.first().len() as u64),
                Some(network.second().len() as u64),
            ])
        }
        Operation::Network => {
            let network = network_of().await?;
            let decoded = |set: IdSet<'_>| {
                let mut ids = Vec::new();
                set.decode_into(&mut ids);
                ids
            };
            let first = limited(decoded(network.first()), question)?;
            let second = limited(decoded(network.second()), question)?;
            Answered::Two([
                graph.listed(first, question).await?,
                graph.listed(second, question).await?,
            ])
        }
        Operation::Distances => {
            let network = network_of().await?;
            let targets: Vec<u64> = ids[1..].iter().flatten().copied().collect();
            let mut found = distances(source, relation, (first, &network), &targets)
                .await?
                .into_iter();
            lines.push("lists of vertices further than 2 away (non-union, one group)".into());
            let distance = |id: &Option<u64>| id.and_then(|_| found.next().flatten()).map(u64::from);
            Answered::Numbers(ids[1..].iter().map(distance).collect())
        }
        Operation::Path => {
            let to = known(1)?;
            let network = network_of().await?;
            lines.push(
                "lists of the vertices before the last, if it is not next to the first (non-union, one group)".into(),
            );
            match shortest_path(source, relation, (first, &network), to).await? {
                Some(path) => Answered::Vertices(Some(graph.listed(path, question).await?)),
                None => Answered::Vertices(None),
            }
        }
        Operation::Common => {
            let found = common(source, relation, &graph.description, (first, known(1)?)).await?;
            lines.push(way(found.way));
            Answered::Vertices(Some(graph.listed(limited(found.ids, question)?, question).await?))
        }
        Operation::HasCommon => {
            let (found, found_by) = has_common(source, relation, &graph.description, (first, known(1)?)).await?;
            lines.push(way(found_by));
            Answered::Flag(found)
        }
    })
}

impl Graph {
    /// The ids of the question's vertices; `None` of a name that no vertex has.
    async fn ids(&self, question: &Question) -> Result<Vec<Option<u64>>, String> {
        if question.as_ids {
            let ids = question.vertices.iter();
            let ids = ids.map(|text| id_of(text).map(Some).ok_or_else(|| not_an_id(text)));
            return ids.collect();
        }
        let keys = question.vertices.iter().map(|name| keys::id(name).into()).collect();
        let ids = self.source.values(keys).await?.into_iter();
        let ids = ids.map(|value| {
            value
                .map(|value| id_of(&value).ok_or_else(|| not_an_id(&value)))
                .transpose()
        });
        ids.collect()
    }

    /// Vertices as the question wants them: by name, or by id.
    async fn listed(&self, ids: Vec<u64>, question: &Question) -> Result<Listed, String> {
        if question.as_ids {
            return Ok(Listed::Ids(ids));
        }
        let selection = Selection {
            with_properties: true,
            ..Selection::default()
        };
        let records = self.source.select(&ids, &selection).await?;
        let name = |(id, record): (&u64, Option<Bytes>)| -> Result<Bytes, String> {
            let vertex: Option<Vertex> = record
                .map(|record| serde_json::from_slice(&record))
                .transpose()
                .map_err(|error| format!("ERR the record of vertex {id} is damaged: {error}"))?;
            Ok(match vertex.and_then(|mut vertex| vertex.properties.remove("name")) {
                Some(serde_json::Value::String(name)) => name.into(),
                Some(other) => other.to_string().into(),
                None => id.to_string().into(),
            })
        };
        let names = ids.iter().zip(records).map(name).collect::<Result<_, _>>();
        Ok(Listed::Names(names?))
    }
}

/// The id that a text is.
pub(crate) fn id_of(text: &[u8]) -> Option<u64> {
    let id = str::from_utf8(text).ok()?.parse::<u64>().ok()?;
    (id <= fondaco_ids::ID_MAX).then_some(id)
}

/// The vertices of an answer, which is no longer than the question allows.
///
/// # Errors
/// The error to answer with.
pub(crate) fn limited(ids: Vec<u64>, question: &Question) -> Result<Vec<u64>, String> {
    match ids.len() <= question.limit {
        true => Ok(ids),
        false => Err(format!(
            "LIMIT the answer has {} vertices, over the limit of {}: raise it with LIMIT, or ask for SIZE",
            ids.len(),
            question.limit
        )),
    }
}

fn way(way: Way) -> String {
    match way {
        Way::Lists { edges: None } => {
            "both lists, intersected where they are: the type has no index (see --index)".into()
        }
        Way::Lists { edges: Some(edges) } => {
            format!("both lists, intersected where they are: they have only {edges} edges")
        }
        Way::Index { edges, partitions } => format!(
            "the index of {partitions} partitions, by all groups: both vertices have {edges} edges (early-terminable)"
        ),
    }
}

fn no_vertex(name: &[u8]) -> String {
    format!("NOVERTEX no vertex is named {:?}", String::from_utf8_lossy(name))
}

fn not_an_id(text: &[u8]) -> String {
    format!(
        "ERR {:?} is not an id: an id is a whole number from 0 to {}",
        String::from_utf8_lossy(text),
        fondaco_ids::ID_MAX
    )
}
