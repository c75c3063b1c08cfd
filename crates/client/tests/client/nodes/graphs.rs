//! Changes of versioned graphs over sockets: many edges at a time.

use bytes::Bytes;
use fondaco_client::graph::EdgeEnds;
use fondaco_client::{Client, PutOptions};
use fondaco_model::ValueType;
use fondaco_model::cluster::TopologyStore;
use fondaco_model::versioned::VersionedSettings;
use fondaco_protocol::replica::{ReplicaCommand, ReplicaErrorCode};
use serde_json::Map;

use super::harness::{Cluster, PATIENCE, name};

const EDGES: usize = 100;

/// Three nodes with all partitions, a versioned graph `g` with a symmetric type of edges, and a client.
async fn three() -> (Cluster, Client) {
    let cluster = Cluster::start(3, 3).await;
    cluster.change(|topology| {
        let store = TopologyStore {
            id: 2,
            value_type: ValueType::Graph,
            ..TopologyStore::versioned(3, VersionedSettings::of(3))
        };
        topology.stores.insert(name("g"), store);
    });
    let client = cluster.client().await;
    let edit = client.graph(name("g")).edit(PATIENCE);
    edit.declare("KNOWS", true).await.unwrap();
    (cluster, client)
}

/// Edges from one vertex to many.
fn edges() -> Vec<(Bytes, Bytes)> {
    let edge = |number: usize| (Bytes::from("hub"), Bytes::from(format!("v{number}")));
    (0..EDGES).map(edge).collect()
}

/// The keys of the records of an edge, at either end.
fn records(end: &EdgeEnds) -> [String; 2] {
    [(end.from, end.to), (end.to, end.from)].map(|(from, to)| format!("out:KNOWS{{{from}}}{to}"))
}

/// How many nodes have a value under a key.
fn holding(cluster: &Cluster, key: &str) -> usize {
    let has = |node: &&super::server::Node| {
        node.state(|state| {
            let record = state.held.records.get(key.as_bytes());
            record.is_some_and(|record| !record.is_deleted(0))
        })
    };
    cluster.nodes.iter().filter(has).count()
}

#[tokio::test]
async fn edges_that_are_added_together_are_merged_together() {
    let (cluster, client) = three().await;
    let edit = client.graph(name("g")).edit(PATIENCE);
    let ends = edit.add_edges("KNOWS", &edges(), &Map::new()).await.unwrap();
    assert_eq!(ends.len(), EDGES);
    for key in ends.iter().flat_map(records) {
        assert_eq!(holding(&cluster, &key), 3, "{key}");
    }
    let merges = cluster
        .nodes
        .iter()
        .map(|node| node.state(|state| state.held.count(ReplicaCommand::Merge)));
    assert!(merges.sum::<usize>() < EDGES, "five records for each edge are merged");
    edit.remove_edges("KNOWS", &edges()).await.unwrap();
    for key in ends.iter().flat_map(records) {
        assert_eq!(holding(&cluster, &key), 0, "{key}");
    }
}

#[tokio::test]
async fn edges_are_written_one_by_one_if_a_replica_refuses_them() {
    let (cluster, client) = three().await;
    cluster.nodes[1].state(|state| state.held.refuses.insert("FONDACO.RMERGE", ReplicaErrorCode::DiskFull));
    let edit = client.graph(name("g")).edit(PATIENCE);
    let ends = edit.add_edges("KNOWS", &edges(), &Map::new()).await.unwrap();
    for key in ends.iter().flat_map(records) {
        assert!(holding(&cluster, &key) >= 2, "{key}");
    }
    cluster.nodes[1].state(|state| state.held.refuses.clear());
    cluster.nodes[2].state(|state| state.held.refuses.insert("FONDACO.RPUT", ReplicaErrorCode::DiskFull));
    edit.remove_edges("KNOWS", &edges()).await.unwrap();
    for key in ends.iter().flat_map(records) {
        assert!(holding(&cluster, &key) <= 1, "{key}");
    }
}

#[tokio::test]
async fn a_vertex_that_another_client_made_keeps_its_properties() {
    let (_cluster, client) = three().await;
    let edit = client.graph(name("g")).edit(PATIENCE);
    let ends = edit.add_edges("KNOWS", &edges()[..1], &Map::new()).await.unwrap();
    let (store, options) = (name("g"), PutOptions::default());
    let vertex = format!("vertex{{{}}}", ends[0].to);
    let record = r#"{"properties":{"age":7,"name":"v0"}}"#;
    client.put(&store, vertex.as_bytes(), record, &options).await.unwrap();
    // As if its maker had not written the record by which it is found.
    client.delete(&store, b"id:v0", &options).await.unwrap();
    let again = edit.add_edges("KNOWS", &edges(), &Map::new()).await.unwrap();
    assert_eq!(again[0], ends[0]);
    assert_eq!(client.get(&store, vertex.as_bytes()).await.unwrap().unwrap(), record);
    assert!(client.get(&store, b"id:v0").await.unwrap().is_some());
}
