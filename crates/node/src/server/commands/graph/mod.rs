//! Graphs: `FONDACO.GRAPH` for what social networks ask, openCypher as FalkorDB's clients send it, and `FONDACO.EDGE` and
//! `FONDACO.VERTEX`, which change versioned ones.

mod at_once;
mod changes;
mod cypher;
mod falkor;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fondaco_catalog::{Setting, StoreId};
use fondaco_graph::keys::Direction;
use fondaco_model::ValueType;
use fondaco_resp::{Reply, parse_integer};

pub(super) use changes::{edge, vertex};
pub(super) use cypher::{explain, query};

use super::{Call, NOT_AN_INTEGER, Refusal, SYNTAX_ERROR};
use crate::graph::{self, Answer, Answered, Asked, Listed, Operation, Question};
use crate::server::refusal;

/// `GRAPH.LIST`: the graphs that the client may read.
pub(super) fn list(call: &Call<'_>, reply: &mut Reply<'_>) {
    let catalog = call.context.shared.catalog.load();
    let is_graph = |store: &&Arc<fondaco_catalog::ServingStore>| {
        catalog.value_type(store) == ValueType::Graph && call.session.may_read(&store.name)
    };
    let graphs: Vec<_> = catalog.stores().iter().filter(is_graph).collect();
    reply.array(graphs.len());
    graphs
        .iter()
        .for_each(|store| reply.bulk(store.name.as_str().as_bytes()));
}

/// `FONDACO.GRAPH operation [IN] [IDS] [LIMIT n] [EXPLAIN] graph type vertex …`
pub(super) async fn own(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (question, name) = parse(
        call.arguments,
        call.context.shared.settings.get(Setting::GraphRowsMax) as usize,
    )?;
    let store = graph_named(call, name, question.vertices.len())?;
    let began = Instant::now();
    let longest_ms = call.context.shared.settings.get(Setting::GraphTimeoutMs);
    let deadline = began + Duration::from_millis(longest_ms);
    if let Some(answered) = at_once::answer(call, store, &question, deadline).await {
        write(&answered?, reply);
        return Ok(());
    }
    let left_ms = longest_ms.saturating_sub(began.elapsed().as_millis() as u64);
    if let Answer::Question(answered) = ask(call, store, Asked::Question(question), Some(left_ms)).await? {
        write(&answered, reply);
    }
    Ok(())
}

/// Asks a graph on the threads for that; within this many milliseconds, if that is less than the settings allow.
async fn ask(call: &Call<'_>, store: StoreId, asked: Asked, timeout_ms: Option<u64>) -> Result<Answer, Refusal> {
    let shared = Arc::clone(&call.context.shared);
    let work = async move |stop| graph::ask(shared, store, &asked, stop).await;
    graph::in_time(&call.context.shared, timeout_ms, work).await
}

/// The number of a graph's store, if the client may read it; its quota is charged with this many keys.
fn graph_named(call: &Call<'_>, name: &[u8], keys: usize) -> Result<StoreId, Refusal> {
    let catalog = call.context.shared.catalog.load();
    let place = call.session.readable_store(&catalog, name)?;
    let store = &catalog.stores()[place as usize];
    graph::check_type(&catalog, store)?;
    call.context.forwarder.charge(&catalog, place, keys)?;
    Ok(store.id)
}

/// Reads the arguments; the question, and the name of the graph.
fn parse<'a>(arguments: &[&'a [u8]], limit_max: usize) -> Result<(Question, &'a [u8]), Refusal> {
    let argument = |at: usize| arguments.get(at).copied().ok_or_else(|| Refusal::from(SYNTAX_ERROR));
    let wanted = argument(1)?;
    let named = |(name, _): &&(&str, Operation)| wanted.eq_ignore_ascii_case(name.as_bytes());
    let Some(&(name, operation)) = Operation::ALL.iter().find(named) else {
        let names: Vec<&str> = Operation::ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "ERR unknown operation {} of FONDACO.GRAPH: use {}",
            refusal::quoted(wanted),
            names.join(", ")
        ));
    };
    let mut question = Question {
        operation,
        edge_type: String::new(),
        direction: Direction::Out,
        vertices: Vec::new(),
        as_ids: false,
        limit: limit_max,
        explain: false,
    };
    let mut at = 2;
    loop {
        match argument(at)?.to_ascii_uppercase().as_slice() {
            b"IN" => question.direction = Direction::In,
            b"IDS" => question.as_ids = true,
            b"EXPLAIN" => question.explain = true,
            b"LIMIT" => {
                at += 1;
                let limit = parse_integer(argument(at)?).and_then(|limit| usize::try_from(limit).ok());
                question.limit = limit.ok_or(NOT_AN_INTEGER)?.min(limit_max);
            }
            _ => break,
        }
        at += 1;
    }
    let graph = argument(at)?;
    let edge_type = argument(at + 1)?;
    question.edge_type = String::from_utf8_lossy(edge_type).into_owned();
    question.vertices = arguments[at + 2..]
        .iter()
        .map(|name| Bytes::copy_from_slice(name))
        .collect();
    let (least, most) = operation.vertices();
    if !(least..=most).contains(&question.vertices.len()) {
        return Err(format!(
            "ERR {name} is about {}: {} were given; IN, IDS, LIMIT and EXPLAIN come before the graph",
            match (least, most) {
                (1, 1) => "one vertex",
                (2, 2) => "two vertices",
                _ => "a vertex and one or more others",
            },
            question.vertices.len()
        ));
    }
    Ok((question, graph))
}

fn write(answered: &Answered, reply: &mut Reply<'_>) {
    let list = |vertices: &Listed, reply: &mut Reply<'_>| match vertices {
        Listed::Ids(ids) => {
            reply.array(ids.len());
            ids.iter().for_each(|&id| reply.bulk_decimal(id));
        }
        Listed::Names(names) => {
            reply.array(names.len());
            names.iter().for_each(|name| reply.bulk(name));
        }
    };
    match answered {
        Answered::Vertices(Some(vertices)) => list(vertices, reply),
        Answered::Vertices(None) => reply.null(),
        Answered::Two(both) => {
            reply.array(2);
            both.iter().for_each(|vertices| list(vertices, reply));
        }
        Answered::Numbers(numbers) => {
            reply.array(numbers.len());
            for number in numbers {
                match number {
                    Some(number) => reply.integer(*number as i64),
                    None => reply.null(),
                }
            }
        }
        Answered::Flag(flag) => reply.integer((*flag).into()),
        Answered::Lines(lines) => {
            reply.array(lines.len());
            lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
        }
    }
}
