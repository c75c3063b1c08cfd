//! Sets of ids: `SMEMBERS`, `SUNION`, … as Redis has them, and `FONDACO.IDS` for queries that Redis does not have. With
//! `FONDACO.COMPUTE` other nodes and routers ask for this node's part.
//!
//! A node computes over the keys that it has, on threads for computations, and has other nodes compute over theirs; the
//! results are merged on such a thread, too.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_catalog::{Catalog, Setting};
use fondaco_client::graph::Keys as _;
use fondaco_client::{ReadOptions, What};
use fondaco_ids::{Computation, IdSet, SetAnswer, SetQuery};
use fondaco_model::StoreName;
use fondaco_resp::command::CommandId;
use fondaco_resp::{Reply, parse_integer};

use super::operation::Operation;
use super::siblings::Siblings;
use super::strings::Strings;
use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR, fields};
use crate::compute::{Limits, NoResult, Sets};
use crate::forward::Steered;
use crate::server::refusal;
use crate::server::session::Admission;
use crate::server::versions::Pinned;

/// A query as a client asked it.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    query: SetQuery,
    /// The arguments that are its keys.
    keys: Range<usize>,
    /// The most ids of the answer, if the client says so.
    ids_max: Option<usize>,
    steered: Steered,
    shape: Shape,
}

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// As it is: for each key an element.
    Each,
    /// A set, as Redis answers.
    Set,
    /// There is one key, whose element it is.
    First,
    /// There is one key, whose element is one number.
    Number,
}

/// Carries out a query over sets of ids.
pub(super) async fn query(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let asked = parse(call.command, call.arguments)?;
    let shared = &call.context.shared;
    let catalog = Arc::clone(&shared.catalog.load());
    let admission = Admission::new(&catalog, call.session, call.context);
    let Keys { store, keys } = Keys::admit(&call.arguments[asked.keys.clone()], &admission)?;
    check_type(&catalog, store)?;
    if let SetQuery::Contains(candidates) = &asked.query {
        Limits::of(shared).check_flags(keys.len(), candidates.len())?;
    }
    let asking = asked.steered.apply(ReadOptions::default());
    let (shared_of_work, query) = (Arc::clone(shared), asked.query);
    let work = async move |stop| {
        let sets = Sets::new(shared_of_work, catalog, store, stop);
        let what = What::Computation(query.computation());
        let found = sets.find(&keys, &what, &asking).await?;
        sets.merge(&query, &found.elements)
    };
    let answer = shared.compute.run(deadline(call, None), work).await;
    let answer = answer.map_err(NoResult::refusal)??;
    if let (SetAnswer::Ids(ids), Some(limit)) = (&answer, asked.ids_max)
        && ids.len() > limit
    {
        return Err(format!(
            "LIMIT the answer has {} ids, over the limit of {limit}",
            ids.len()
        ));
    }
    write(&answer, asked.shape, reply);
    Ok(())
}

/// `FONDACO.COMPUTE envelope store-id version store computation parameter key …`: an array with an element for each key.
pub(super) async fn compute(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let shared = &call.context.shared;
    let catalog = Arc::clone(&shared.catalog.load());
    let argument = |at: usize| call.arguments.get(at).copied().unwrap_or_default();
    let pinned = Pinned::parse(argument, call.session, &catalog)?;
    let computation = Computation::parse(argument(5), argument(6)).map_err(|error| format!("ERR {error}"))?;
    if let Computation::Fields(query) = &computation {
        return fields::compute(call, &pinned, query, catalog, reply).await;
    }
    check_type(&catalog, pinned.store)?;
    let keys: Vec<Bytes> = call.arguments[7..]
        .iter()
        .map(|key| Bytes::copy_from_slice(key))
        .collect();
    if let Computation::Contains(candidates) = &computation {
        Limits::of(shared).check_flags(keys.len(), candidates.len())?;
    }
    let shared_of_work = Arc::clone(shared);
    let work = async move |stop| {
        let sets = Sets::new(shared_of_work, catalog, pinned.store, stop);
        sets.here(
            pinned.version,
            &keys,
            &What::Computation(computation),
            pinned.reads_bits,
        )
    };
    let elements = shared.compute.run(deadline(call, pinned.timeout_ms), work).await;
    let elements = elements.map_err(NoResult::refusal)??;
    reply.array(elements.len() + usize::from(pinned.wants_rate));
    if pinned.wants_rate {
        reply.integer(shared.metrics.request_rate().into());
    }
    for element in elements {
        match element {
            Some(element) => reply.bulk(&element),
            None => reply.null(),
        }
    }
    Ok(())
}

/// When a computation has to be done: after the timeout of the settings, or one that ends earlier.
pub(super) fn deadline(call: &Call<'_>, timeout_ms: Option<u64>) -> Instant {
    let longest_ms = call.context.shared.settings.get(Setting::ForwardTimeoutMs);
    let timeout_ms = timeout_ms.unwrap_or(longest_ms).min(longest_ms);
    Instant::now() + Duration::from_millis(timeout_ms)
}

/// Reads the arguments of a query.
fn parse(command: CommandId, arguments: &[&[u8]]) -> Result<Asked, Refusal> {
    use CommandId as Id;
    let all = 1..arguments.len();
    let asked = |query, keys| Asked {
        query,
        keys,
        ids_max: None,
        steered: Steered::default(),
        shape: Shape::Each,
    };
    let set = |query, keys| Asked {
        shape: Shape::Set,
        ..asked(query, keys)
    };
    // Text that is no id is in no set, and so is a number above all ids.
    let contains = |ids: &[&[u8]]| SetQuery::Contains(ids.iter().map(|text| id(text).unwrap_or(u64::MAX)).collect());
    Ok(match command {
        Id::SMembers => set(SetQuery::Union, 1..2),
        Id::SUnion => set(SetQuery::Union, all),
        Id::SInter => set(SetQuery::Intersection, all),
        Id::SDiff => set(SetQuery::Difference, all),
        Id::SCard => Asked {
            shape: Shape::Number,
            ..asked(SetQuery::Counts, 1..2)
        },
        Id::SIsMember => Asked {
            shape: Shape::Number,
            ..asked(contains(&arguments[2..3]), 1..2)
        },
        Id::SMIsMember => Asked {
            shape: Shape::First,
            ..asked(contains(&arguments[2..]), 1..2)
        },
        _ => parse_own(arguments)?,
    })
}

/// `FONDACO.IDS UNION|INTERSECTION|DIFFERENCE|INTERSECTS|COUNTS|TOP count|CONTAINS id,… [FANOUT groups] [STRATEGY name] [LIMIT ids] key …`
fn parse_own(arguments: &[&[u8]]) -> Result<Asked, Refusal> {
    let argument = |at: usize| arguments.get(at).copied().ok_or_else(|| Refusal::from(SYNTAX_ERROR));
    let number = |at: usize| -> Result<usize, Refusal> {
        let number = parse_integer(argument(at)?).ok_or(NOT_AN_INTEGER)?;
        usize::try_from(number).map_err(|_| NOT_AN_INTEGER.into())
    };
    let mut at = 2;
    let query = match argument(1)?.to_ascii_uppercase().as_slice() {
        b"UNION" => SetQuery::Union,
        b"INTERSECTION" => SetQuery::Intersection,
        b"DIFFERENCE" => SetQuery::Difference,
        b"INTERSECTS" => SetQuery::Intersects,
        b"COUNTS" => SetQuery::Counts,
        b"TOP" => {
            at += 1;
            SetQuery::Top(number(2)?)
        }
        b"CONTAINS" => {
            at += 1;
            let ids: Option<Vec<u64>> = argument(2)?.split(|&byte| byte == b',').map(id).collect();
            SetQuery::Contains(ids.ok_or_else(not_an_id)?.into())
        }
        other => {
            return Err(format!(
                "ERR unknown operation {} of FONDACO.IDS: use UNION, INTERSECTION, DIFFERENCE, INTERSECTS, COUNTS, TOP or \
                 CONTAINS",
                refusal::quoted(other)
            ));
        }
    };
    let (steered, mut at) = Steered::parse(|at| arguments.get(at).copied(), at)?;
    let mut ids_max = None;
    if argument(at)?.eq_ignore_ascii_case(b"LIMIT") {
        ids_max = Some(number(at + 1)?);
        at += 2;
    }
    argument(at)?;
    Ok(Asked {
        query,
        keys: at..arguments.len(),
        ids_max,
        steered,
        shape: Shape::Each,
    })
}

fn id(text: &[u8]) -> Option<u64> {
    parse_integer(text).and_then(|id| u64::try_from(id).ok())
}

fn not_an_id() -> Refusal {
    format!("ERR an id is a whole number from 0 to {}", fondaco_ids::ID_MAX)
}

/// An operation on a key of a versioned store of ids, with its value as an encoded set. Clients may write a set as text, too.
///
/// # Errors
/// The error to answer with: the value is no set, or would be changed as text.
pub(in crate::server) fn checked(mut operation: Operation, store: &StoreName) -> Result<Operation, Refusal> {
    let value = match &mut operation {
        Operation::Strings(Strings::Set(set)) => &mut set.value,
        Operation::Siblings(Siblings::Put { value, .. }) => value,
        Operation::Strings(Strings::Append(_) | Strings::SetRange(..) | Strings::Add(_)) => {
            return Err(format!(
                "WRONGTYPE the values of store {store:?} are sets of ids, not text: write a whole set with SET"
            ));
        }
        _ => return Ok(operation),
    };
    if IdSet::parse(value).is_err() {
        let text = str::from_utf8(value).map_err(|_| {
            format!("WRONGTYPE the values of store {store:?} are sets of ids: write them as text, as in \"1 5 9\", or encoded")
        })?;
        let encoded = fondaco_ids::parse_text(text).and_then(|ids| fondaco_ids::encode(&ids));
        *value = Bytes::from(encoded.map_err(|error| format!("WRONGTYPE {error}"))?);
    }
    Ok(operation)
}

/// Keys of one store.
pub(super) struct Keys {
    pub(super) store: u16,
    pub(super) keys: Vec<Bytes>,
}

impl Keys {
    /// Checks the keys of a query, and charges the store's quota.
    pub(super) fn admit(wire_keys: &[&[u8]], admission: &Admission<'_>) -> Result<Self, Refusal> {
        let catalog = admission.catalog;
        let mut store = None;
        let mut keys = Vec::with_capacity(wire_keys.len());
        for wire_key in wire_keys {
            let colon = memchr::memchr(b':', wire_key).ok_or_else(|| refusal::no_colon(wire_key))?;
            let (name, key) = (&wire_key[..colon], &wire_key[colon + 1..]);
            if key.is_empty() {
                return Err(refusal::EMPTY_KEY.into());
            }
            let is_same = |&store: &u16| catalog.stores()[store as usize].name.as_str().as_bytes() == name;
            match store {
                None => store = Some(admission.session.readable_store(catalog, name)?),
                Some(first) if !is_same(&first) => {
                    return Err(format!(
                        "ERR keys of {:?} and of {}: all keys of a query are of one store",
                        catalog.stores()[first as usize].name,
                        refusal::quoted(name)
                    ));
                }
                Some(_) => {}
            }
            keys.push(Bytes::copy_from_slice(key));
        }
        let store = store.ok_or(SYNTAX_ERROR)?;
        admission.forwarder.charge(catalog, store, keys.len())?;
        Ok(Self { store, keys })
    }
}

fn check_type(catalog: &Catalog, store: u16) -> Result<(), Refusal> {
    let store = &catalog.stores()[store as usize];
    let value_type = catalog.value_type(store);
    match value_type.has_sets() {
        true => Ok(()),
        false => Err(format!(
            "WRONGTYPE the values of store {:?} are {value_type}, and not sets of ids: create a store with fondaco store \
             create NAME --value-type ids",
            store.name
        )),
    }
}

/// Writes an answer: for one key alone without an array around it.
fn write(answer: &SetAnswer, shape: Shape, reply: &mut Reply<'_>) {
    let flags = |flags: &[bool], reply: &mut Reply<'_>| {
        reply.array(flags.len());
        flags.iter().for_each(|&flag| reply.integer(flag.into()));
    };
    match answer {
        SetAnswer::Ids(ids) => {
            match shape {
                Shape::Set => reply.set(ids.len()),
                _ => reply.array(ids.len()),
            }
            ids.iter().for_each(|&id| reply.bulk_decimal(id));
        }
        SetAnswer::Flag(flag) => reply.integer((*flag).into()),
        SetAnswer::Counts(counts) => {
            if shape == Shape::Each {
                reply.array(counts.len());
            }
            counts.iter().for_each(|&count| reply.integer(count as i64));
        }
        SetAnswer::Top(top) => {
            reply.array(2 * top.len());
            for multiplicity in top {
                reply.bulk_decimal(multiplicity.id);
                reply.integer(multiplicity.count as i64);
            }
        }
        SetAnswer::Contains(keys) => match (shape, &keys[..]) {
            (Shape::First, [own]) => flags(own, reply),
            (Shape::Number, [own]) => reply.integer(own.first().copied().unwrap_or_default().into()),
            _ => {
                reply.array(keys.len());
                keys.iter().for_each(|own| flags(own, reply));
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Asked, Refusal> {
        let arguments: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        parse_own(&arguments)
    }

    #[test]
    fn options_stand_before_the_keys() {
        let asked = parsed("FONDACO.IDS TOP 5 LIMIT 100 s:a s:b").unwrap();
        assert_eq!(
            (&asked.query, asked.keys, asked.ids_max),
            (&SetQuery::Top(5), 5..7, Some(100))
        );
        let asked = parsed("fondaco.ids contains 5,1,5 s:a").unwrap();
        assert_eq!(asked.query, SetQuery::Contains([5, 1, 5].into()));
        assert_eq!(asked.keys, 3..4);
    }

    #[test]
    fn malformed_queries_are_refused_by_name() {
        for (text, part) in [
            ("FONDACO.IDS UNION", "syntax"),
            ("FONDACO.IDS SUM s:a", "\"SUM\""),
            ("FONDACO.IDS TOP s:a", "not an integer"),
            ("FONDACO.IDS TOP -1 s:a", "not an integer"),
            ("FONDACO.IDS CONTAINS 1,x s:a", "whole number"),
            ("FONDACO.IDS CONTAINS -1 s:a", "whole number"),
            ("FONDACO.IDS UNION LIMIT 5", "syntax"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
