//! `FONDACO.EDGE` and `FONDACO.VERTEX`: changes of versioned and hybrid graphs.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::{EventStore, WrittenStore};
use fondaco_client::graph::{RepairCursor, VertexChange};
use fondaco_model::Acknowledge;
use fondaco_resp::Reply;
use serde_json::{Map, Value};

use super::graph_named;
use crate::graph::{self, Change, Changed};
use crate::server::commands::{Call, Refusal, SYNTAX_ERROR};
use crate::server::queue::applied;
use crate::server::refusal;

/// `FONDACO.EDGE DECLARE graph type [SYMMETRIC]`, `ADD [PROPERTIES json] graph type from to …`, `REMOVE graph type from to …`,
/// `REPAIR graph cursor`
pub(in crate::server::commands) async fn edge(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (graph, change) = parse_edge(&call.arguments[1..])?;
    make(call, graph, change, reply).await
}

/// `FONDACO.VERTEX PUT [LABEL label …] [PROPERTIES json] graph name …`, `REMOVE graph name …`
pub(in crate::server::commands) async fn vertex(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (graph, change) = parse_vertex(&call.arguments[1..])?;
    make(call, graph, change, reply).await
}

async fn make(call: &Call<'_>, name: &[u8], change: Change, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let shared = Arc::clone(&call.context.shared);
    let catalog = shared.catalog.load();
    let id = graph_named(call, name, 0)?;
    let place = catalog.stores().iter().position(|store| store.id == id);
    let place = place.ok_or_else(|| refusal::no_store(name))?;
    let store = &catalog.stores()[place].name;
    if !call.session.may_write(store) {
        return Err(refusal::no_right_to_write(store));
    }
    let written = catalog.written(place as u16).cloned();
    let written = written
        .ok_or_else(|| format!("READONLY {store:?} is a batch graph: its data comes by push, see fondaco push"))?;
    let writes = match &change {
        Change::AddEdges { edges, .. } | Change::RemoveEdges { edges, .. } => 2 * edges.len(),
        Change::PutVertices { names, .. } | Change::RemoveVertices { names } => names.len(),
        Change::Declare { .. } => 1,
        Change::Repair { .. } => 0,
    };
    let (types, quota) = match &written {
        WrittenStore::Versioned(store) => (&store.types, store.settings.write_keys_per_second),
        WrittenStore::Hybrid(store) => (&store.types, store.stream.write_keys_per_second),
    };
    call.context.forwarder.charge_writes(&catalog, types, quota, writes)?;
    drop(catalog);
    let changed = match written {
        WrittenStore::Versioned(_) => {
            let work = async move |stop| graph::change(shared, id, &change, stop).await;
            graph::in_time(&call.context.shared, None, work).await?
        }
        WrittenStore::Hybrid(store) => make_by_events(call, &store, change).await?,
    };
    match changed {
        Changed::All => reply.simple("OK"),
        Changed::Number(number) => reply.integer(number as i64),
        Changed::Repaired(next, repaired) => {
            let next = next.map_or_else(|| "0".into(), |next| format!("{}:{}", next.partition, next.vertex));
            reply.array(2);
            reply.bulk(next.as_bytes());
            reply.integer(repaired as i64);
        }
    }
    Ok(())
}

/// Writes the events of a change, and waits until reads see them, if the store says so.
async fn make_by_events(call: &Call<'_>, store: &Arc<EventStore>, change: Change) -> Result<Changed, Refusal> {
    let (shared, of_work) = (Arc::clone(&call.context.shared), Arc::clone(store));
    let work = async move |stop| graph::change_by_events(shared, of_work, &change, stop).await;
    let (changed, written) = graph::in_time(&call.context.shared, None, work).await?;
    if store.stream.acknowledge == Acknowledge::Applied {
        for (key, written) in written {
            applied(call.context, store, &key, written).await?;
        }
    }
    Ok(changed)
}

fn parse_edge<'a>(arguments: &[&'a [u8]]) -> Result<(&'a [u8], Change), Refusal> {
    let (operation, mut rest) = arguments.split_first().ok_or(SYNTAX_ERROR)?;
    Ok(match (operation.to_ascii_uppercase().as_slice(), rest) {
        (b"DECLARE", [graph, edge_type, options @ ..]) => {
            let symmetric = match options {
                [] => false,
                [word] if word.eq_ignore_ascii_case(b"SYMMETRIC") => true,
                _ => return Err(SYNTAX_ERROR.into()),
            };
            let edge_type = text(edge_type);
            (graph, Change::Declare { edge_type, symmetric })
        }
        (b"ADD", _) => {
            let mut properties = Map::new();
            if let [word, json, others @ ..] = rest
                && word.eq_ignore_ascii_case(b"PROPERTIES")
            {
                properties = object(json)?;
                rest = others;
            }
            let [graph, edge_type, ends @ ..] = rest else {
                return Err(SYNTAX_ERROR.into());
            };
            let change = Change::AddEdges {
                edge_type: text(edge_type),
                edges: pairs(ends)?,
                properties,
            };
            (graph, change)
        }
        (b"REMOVE", [graph, edge_type, ends @ ..]) => {
            let change = Change::RemoveEdges {
                edge_type: text(edge_type),
                edges: pairs(ends)?,
            };
            (graph, change)
        }
        (b"REPAIR", [graph, cursor]) => {
            let cursor =
                cursor_of(cursor).ok_or("ERR invalid cursor: begin with 0, and go on with the one answered")?;
            (graph, Change::Repair { cursor })
        }
        (b"DECLARE" | b"REMOVE" | b"REPAIR", _) => return Err(SYNTAX_ERROR.into()),
        _ => {
            return Err(format!(
                "ERR unknown operation {} of FONDACO.EDGE: use DECLARE, ADD, REMOVE or REPAIR",
                refusal::quoted(operation)
            ));
        }
    })
}

fn parse_vertex<'a>(arguments: &[&'a [u8]]) -> Result<(&'a [u8], Change), Refusal> {
    let (operation, mut rest) = arguments.split_first().ok_or(SYNTAX_ERROR)?;
    let mut change = VertexChange::default();
    let is_put = operation.eq_ignore_ascii_case(b"PUT");
    if !is_put && !operation.eq_ignore_ascii_case(b"REMOVE") {
        return Err(format!(
            "ERR unknown operation {} of FONDACO.VERTEX: use PUT or REMOVE",
            refusal::quoted(operation)
        ));
    }
    while let [word, value, others @ ..] = rest
        && is_put
    {
        match word.to_ascii_uppercase().as_slice() {
            b"LABEL" => change.labels.push(text(value)),
            b"PROPERTIES" => change.properties = object(value)?,
            _ => break,
        }
        rest = others;
    }
    let [graph, names @ ..] = rest else {
        return Err(SYNTAX_ERROR.into());
    };
    if names.is_empty() {
        return Err(SYNTAX_ERROR.into());
    }
    let names = names.iter().map(|name| Bytes::copy_from_slice(name)).collect();
    Ok(match is_put {
        true => (graph, Change::PutVertices { names, change }),
        false => (graph, Change::RemoveVertices { names }),
    })
}

fn pairs(ends: &[&[u8]]) -> Result<Vec<(Bytes, Bytes)>, Refusal> {
    let (pairs, rest) = ends.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(format!(
            "ERR {} names are no pairs: each edge has the name of a vertex that it leads from, and of one that it leads to",
            ends.len()
        ));
    }
    let pair = |[from, to]: &[&[u8]; 2]| (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
    Ok(pairs.iter().map(pair).collect())
}

fn object(json: &[u8]) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_slice(json).map_err(|error| format!("ERR properties are an object of JSON: {error}"))
}

fn cursor_of(text: &[u8]) -> Option<RepairCursor> {
    let text = str::from_utf8(text).ok()?;
    if text == "0" {
        return Some(RepairCursor::default());
    }
    let (partition, vertex) = text.split_once(':')?;
    Some(RepairCursor {
        partition: partition.parse().ok()?,
        vertex: vertex.parse().ok()?,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&[u8]> {
        text.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn changes_of_edges_are_parsed() {
        let parsed = |text: &str| parse_edge(&words(text)).map(|(graph, change)| (text_of(graph), change));
        let text_of_error = |text: &str| parsed(text).unwrap_err();
        let (graph, added) = parsed(r#"add properties {"since":2001} g KNOWS a b c d"#).unwrap();
        assert_eq!(graph, "g");
        let Change::AddEdges { edges, properties, .. } = added else {
            panic!()
        };
        assert_eq!((edges.len(), properties["since"].as_u64()), (2, Some(2001)));
        assert!(matches!(
            parsed("DECLARE g T SYMMETRIC").unwrap().1,
            Change::Declare { symmetric: true, .. }
        ));
        let cursor = RepairCursor {
            partition: 3,
            vertex: 7,
        };
        assert!(matches!(parsed("REPAIR g 3:7").unwrap().1, Change::Repair { cursor: found } if found == cursor));
        assert!(text_of_error("ADD g T a").contains("1 names are no pairs"));
        assert!(text_of_error("REMOVE g T").contains("no pairs"));
        assert!(text_of_error("GUESS g T a").contains("use DECLARE"));
        assert!(text_of_error("ADD PROPERTIES 7 g T a b").contains("object of JSON"));
        assert!(text_of_error("REPAIR g x").contains("cursor"));
        assert_eq!(text_of_error("DECLARE g T x"), SYNTAX_ERROR);
    }

    #[test]
    fn changes_of_vertices_are_parsed() {
        let parsed = |text: &str| parse_vertex(&words(text)).map(|(graph, change)| (text_of(graph), change));
        let (graph, put) = parsed(r#"PUT LABEL A LABEL B PROPERTIES {"age":7} g ann bob"#).unwrap();
        assert_eq!(graph, "g");
        let Change::PutVertices { names, change } = put else {
            panic!()
        };
        assert_eq!((names.len(), change.labels.len(), change.properties.len()), (2, 2, 1));
        // A graph, and a vertex, may be called like an option.
        let (graph, removed) = parsed("REMOVE label label").unwrap();
        assert!(matches!(removed, Change::RemoveVertices { names } if names.len() == 1));
        assert_eq!(graph, "label");
        assert!(parsed("GUESS g a").unwrap_err().contains("PUT or REMOVE"));
        assert!(parsed("PUT g").is_err());
    }

    fn text_of(bytes: &[u8]) -> String {
        text(bytes)
    }
}
