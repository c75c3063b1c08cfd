//! The graph operations of a social network: the algorithms of Cho et al., "Moolle: Fan-out Control for Scalable
//! Distributed Data Stores", IV.A, with the fan-out that it assigns to each request. Errors of the printed algorithms
//! are corrected: the source has distance 0, degree 2 has neither the source nor degree 1, and the answer is "no"
//! only if all parts say so.

use bytes::Bytes;
use fondaco_ids::{Budget, IdSet, IdsError, SetAnswer, SetQuery, intersects};

use crate::keys::{self, Direction};
use crate::{Ask, Description, EdgeType, Source};

/// If both vertices together have more edges than this, their common neighbours are read from the index: the lists
/// would be long to send.
const INDEX_FROM_EDGES: u64 = 10_000;

/// The part of an index's partitions that is asked first, where any common neighbour answers the question.
const FIRST_PART: usize = 8;

/// Edges of one type, followed in one direction.
#[derive(Debug, Clone, Copy)]
pub struct Relation<'a> {
    /// The name of the type.
    pub name: &'a str,
    /// The type.
    pub edge_type: &'a EdgeType,
    /// The direction; of no account in a symmetric type.
    pub direction: Direction,
}

/// A vertex's network: the vertices that are one edge, and two edges away. Both are encoded sets, to be kept in little memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    first: Vec<u8>,
    second: Vec<u8>,
}

/// How common neighbours were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Both lists were intersected where they are, since the type has no index, or together they have only this many edges.
    Lists {
        /// The edges of both vertices; `None` if the type has no index.
        edges: Option<u64>,
    },
    /// The nodes intersected their part of the index, since both vertices together have this many edges.
    Index {
        /// The edges of both vertices.
        edges: u64,
        /// How many partitions were asked.
        partitions: usize,
    },
}

/// The common neighbours of two vertices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Common {
    /// The vertices that both have edges to, in ascending order.
    pub ids: Vec<u64>,
    /// How they were found.
    pub way: Way,
}

impl<'a> Relation<'a> {
    /// The relation of a type.
    ///
    /// # Errors
    /// The error to answer with: the graph has no such type.
    pub fn of(description: &'a Description, name: &str, direction: Direction) -> Result<Self, String> {
        match description.types.get_key_value(name) {
            Some((name, edge_type)) => Ok(Self {
                name,
                edge_type,
                direction,
            }),
            None => {
                let known: Vec<&str> = description.types.keys().map(String::as_str).collect();
                Err(format!(
                    "NOTYPE the graph has no edges of type {name:?}, but of {}",
                    known.join(", ")
                ))
            }
        }
    }

    /// The same edges, followed the other way.
    pub fn reversed(self) -> Self {
        Self {
            direction: self.direction.reverse(),
            ..self
        }
    }

    /// The key of a vertex's neighbours.
    pub fn key(&self, id: u64) -> Bytes {
        let direction = match self.edge_type.symmetric {
            true => Direction::Out,
            false => self.direction,
        };
        keys::neighbours(self.name, direction, id).into()
    }

    fn keys(&self, ids: &[u64]) -> Vec<Bytes> {
        ids.iter().map(|&id| self.key(id)).collect()
    }
}

impl Network {
    /// A network of these vertices, each in ascending order.
    ///
    /// # Errors
    /// The error to answer with: ids over the largest, or not in this order.
    pub fn new(first: &[u64], second: &[u64]) -> Result<Self, String> {
        let encode = |ids| fondaco_ids::encode(ids).map_err(error_text);
        Ok(Self {
            first: encode(first)?,
            second: encode(second)?,
        })
    }

    /// The vertices one edge away.
    pub fn first(&self) -> IdSet<'_> {
        open(&self.first)
    }

    /// The vertices two edges away, and not one.
    pub fn second(&self) -> IdSet<'_> {
        open(&self.second)
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// The number of edges to a vertex, 0 to 2; `None` if it is further away.
    pub fn distance(&self, source: u64, target: u64) -> Option<u8> {
        match target {
            _ if target == source => Some(0),
            _ if self.first().contains(target) => Some(1),
            _ if self.second().contains(target) => Some(2),
            _ => None,
        }
    }
}

/// A vertex's network (Algorithm 2).
///
/// # Errors
/// The error to answer with.
pub async fn network(source: &impl Source, relation: Relation<'_>, id: u64, ask: Ask) -> Result<Network, String> {
    let mut first = ids(source
        .query(vec![relation.key(id)], SetQuery::Union, Ask::NonUnion)
        .await?);
    remove(&mut first, &[id]);
    if first.is_empty() {
        return Network::new(&[], &[]);
    }
    let mut second = ids(source.query(relation.keys(&first), SetQuery::Union, ask).await?);
    remove(&mut second, &first);
    if let Ok(place) = second.binary_search(&id) {
        second.remove(place);
    }
    Network::new(&first, &second)
}

/// The number of edges from a vertex to each target, 0 to 3; `None` if it is further away (Algorithm 1).
///
/// # Errors
/// The error to answer with.
pub async fn distances(
    source: &impl Source,
    relation: Relation<'_>,
    (id, network): (u64, &Network),
    targets: &[u64],
) -> Result<Vec<Option<u8>>, String> {
    let mut distances: Vec<Option<u8>> = targets.iter().map(|&target| network.distance(id, target)).collect();
    let far: Vec<usize> = (0..targets.len()).filter(|&at| distances[at].is_none()).collect();
    if far.is_empty() || network.second().is_empty() {
        return Ok(distances);
    }
    let relation = relation.reversed();
    let keys = far.iter().map(|&at| relation.key(targets[at])).collect();
    for (at, set) in far.into_iter().zip(source.sets(keys, Ask::NonUnion).await?) {
        if let Some(set) = set
            && intersects(parse(&set)?, network.second(), &mut Budget::of_ids(usize::MAX)).map_err(error_text)?
        {
            distances[at] = Some(3);
        }
    }
    Ok(distances)
}

/// The vertices of a shortest path of at most three edges, its ends among them; `None` if there is no such path.
///
/// # Errors
/// The error to answer with.
pub async fn shortest_path(
    source: &impl Source,
    relation: Relation<'_>,
    (from, network): (u64, &Network),
    to: u64,
) -> Result<Option<Vec<u64>>, String> {
    let before = relation.reversed();
    let first = async |id| neighbour(source, before, id, network.first()).await;
    Ok(match network.distance(from, to) {
        Some(0) => Some(vec![from]),
        Some(1) => Some(vec![from, to]),
        Some(_) => first(to).await?.map(|between| vec![from, between, to]),
        None => match neighbour(source, before, to, network.second()).await? {
            Some(second) => first(second).await?.map(|first| vec![from, first, second, to]),
            None => None,
        },
    })
}

/// The vertices that edges lead to from both.
///
/// # Errors
/// The error to answer with.
pub async fn common(
    source: &impl Source,
    relation: Relation<'_>,
    description: &Description,
    (one, other): (u64, u64),
) -> Result<Common, String> {
    let tags = keys::tags(description.partitions);
    let way = way(source, relation, tags.len(), (one, other)).await?;
    let ids = match way {
        Way::Lists { .. } => lists(source, relation, (one, other)).await?,
        Way::Index { .. } => index(source, relation, &tags, (one, other)).await?,
    };
    Ok(Common { ids, way })
}

/// Whether there is a vertex that edges lead to from both (Algorithm 3). Where an index is asked, a part of it is asked
/// first; "no" is the answer of all of it.
///
/// # Errors
/// The error to answer with.
pub async fn has_common(
    source: &impl Source,
    relation: Relation<'_>,
    description: &Description,
    (one, other): (u64, u64),
) -> Result<(bool, Way), String> {
    let tags = keys::tags(description.partitions);
    let way = way(source, relation, tags.len(), (one, other)).await?;
    let Way::Index { edges, .. } = way else {
        return Ok((!lists(source, relation, (one, other)).await?.is_empty(), way));
    };
    let (first, rest) = tags.split_at(tags.len().div_ceil(FIRST_PART));
    if !index(source, relation, first, (one, other)).await?.is_empty() {
        let partitions = first.len();
        return Ok((true, Way::Index { edges, partitions }));
    }
    Ok((!index(source, relation, rest, (one, other)).await?.is_empty(), way))
}

async fn way(
    source: &impl Source,
    relation: Relation<'_>,
    partitions: usize,
    (one, other): (u64, u64),
) -> Result<Way, String> {
    // An index has those vertices that have an edge to both.
    let indexed = relation.edge_type.indexed && (relation.edge_type.symmetric || relation.direction == Direction::In);
    if !indexed {
        return Ok(Way::Lists { edges: None });
    }
    let keys = relation.keys(&[one, other]);
    let edges = match source.query(keys, SetQuery::Counts, Ask::NonUnion).await? {
        SetAnswer::Counts(counts) => counts.iter().sum(),
        _ => 0,
    };
    Ok(match edges >= INDEX_FROM_EDGES {
        true => Way::Index { edges, partitions },
        false => Way::Lists { edges: Some(edges) },
    })
}

async fn lists(source: &impl Source, relation: Relation<'_>, (one, other): (u64, u64)) -> Result<Vec<u64>, String> {
    let keys = relation.keys(&[one, other]);
    Ok(ids(source.query(keys, SetQuery::Intersection, Ask::NonUnion).await?))
}

async fn index(
    source: &impl Source,
    relation: Relation<'_>,
    tags: &[String],
    (one, other): (u64, u64),
) -> Result<Vec<u64>, String> {
    let pair = |tag: &String| [one, other].map(|id| Bytes::from(keys::index(relation.name, tag, id)));
    let keys: Vec<Bytes> = tags.iter().flat_map(pair).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    Ok(ids(source.query(keys, SetQuery::Pairs, Ask::EarlyTerminable).await?))
}

/// The first neighbour of a vertex that is in a set.
async fn neighbour(
    source: &impl Source,
    relation: Relation<'_>,
    id: u64,
    among: IdSet<'_>,
) -> Result<Option<u64>, String> {
    let set = source
        .sets(vec![relation.key(id)], Ask::NonUnion)
        .await?
        .pop()
        .flatten();
    let Some(set) = set else { return Ok(None) };
    Ok(parse(&set)?.iter().find(|&id| among.contains(id)))
}

fn ids(answer: SetAnswer) -> Vec<u64> {
    match answer {
        SetAnswer::Ids(ids) => ids,
        _ => Vec::new(),
    }
}

fn parse(set: &[u8]) -> Result<IdSet<'_>, String> {
    IdSet::parse(set).map_err(error_text)
}

/// A set that was encoded here.
fn open(set: &[u8]) -> IdSet<'_> {
    IdSet::open(set).unwrap_or_else(|error| unreachable!("an encoded set is one: {error}"))
}

fn error_text(error: IdsError) -> String {
    format!("ERR {error}")
}

/// Removes ids from others, all in ascending order.
pub(crate) fn remove(from: &mut Vec<u64>, ids: &[u64]) {
    let mut rest = ids;
    from.retain(|id| {
        while let [first, others @ ..] = rest
            && first < id
        {
            rest = others;
        }
        rest.first() != Some(id)
    });
}
