//! How a client learns the cluster: from seeds, some of them dead, and again when it changes.

use std::time::Duration;

use fondaco_client::{Client, ClientError};

use super::harness::{Cluster, id, name, until, value_of};

/// Makes these nodes return the current topology.
fn tell(cluster: &Cluster, nodes: &[usize], tag: &str) {
    let topology = cluster.topology.borrow().clone().unwrap();
    let json = serde_json::to_string(&*topology).unwrap();
    for &node in nodes {
        cluster.nodes[node].state(|state| state.topology = Some((tag.into(), json.clone())));
    }
}

fn seeds(cluster: &Cluster) -> Vec<String> {
    cluster.nodes.iter().map(|node| node.address.to_string()).collect()
}

#[tokio::test]
async fn one_seed_that_answers_is_enough() {
    let mut cluster = Cluster::start(3, 2).await;
    tell(&cluster, &[2], "a");
    cluster.nodes[0].kill().await;
    let client = Client::builder().seeds(seeds(&cluster)).connect().await.unwrap();
    assert_eq!(client.topology(), cluster.topology.borrow().clone());
    assert_eq!(client.get(&name("s"), b"k").await, Ok(Some(value_of(1, "k"))));
}

#[tokio::test]
async fn an_unchanged_topology_is_not_sent_again() {
    let cluster = Cluster::start(1, 1).await;
    tell(&cluster, &[0], "a");
    let client = Client::builder().seeds(seeds(&cluster)).connect().await.unwrap();
    let before = client.topology();
    until("it was asked again", || {
        cluster.nodes[0].state(|state| state.topology_questions) >= 2
    })
    .await;
    assert_eq!(client.topology(), before);
}

#[tokio::test]
async fn a_node_without_the_version_triggers_a_refresh_at_once() {
    let cluster = Cluster::start(2, 2).await;
    tell(&cluster, &[0, 1], "a");
    let client = Client::builder().seeds(seeds(&cluster)).connect().await.unwrap();
    for version in 2..6 {
        cluster.swap("s", version);
        tell(&cluster, &[0, 1], &version.to_string());
        let open = [("s".to_owned(), [version].into())];
        for node in &cluster.nodes {
            node.state(|state| state.open = open.clone().into());
        }
        // The client was not notified. It would poll by itself within a second, and four such waits exceed the deadline
        // of all four.
        assert_eq!(client.get(&name("s"), b"k").await, Ok(Some(value_of(version, "k"))));
    }
    assert_eq!(client.stats().reads.keys_failed, 0);
}

#[tokio::test]
async fn other_nodes_are_asked_when_all_seeds_are_gone() {
    let mut cluster = Cluster::start(2, 2).await;
    tell(&cluster, &[0, 1], "a");
    let seed = seeds(&cluster).remove(0);
    let client = Client::builder().seeds([seed]).connect().await.unwrap();
    cluster.nodes[0].kill().await;
    cluster.open("s", 2);
    cluster.swap("s", 2);
    tell(&cluster, &[1], "b");
    until("it knows the new version", || {
        let topology = client.topology().unwrap();
        topology.stores[&name("s")]
            .current
            .is_some_and(|version| version.get() == 2)
    })
    .await;
}

#[tokio::test]
async fn a_node_that_moves_is_found_at_its_new_address() {
    let mut cluster = Cluster::start(2, 1).await;
    let client = cluster.client().await;
    let moved = super::server::Node::start(None).await;
    moved.state(|state| state.open = [("s".to_owned(), [1].into())].into());
    let address = moved.address.to_string();
    cluster.nodes[0].kill().await;
    cluster.nodes[0] = moved;
    cluster.change(|topology| topology.nodes.get_mut(&id(1)).unwrap().resp = address.clone());
    until("it is connected to", || {
        let node = client.stats().nodes.remove(0);
        *node.address == *address && node.connections > 0 && !node.suspended
    })
    .await;
    let keys = super::harness::keys(40);
    let reply = client.get_many(&keys, &Default::default()).await.unwrap();
    assert!(reply.values.iter().all(Result::is_ok));
    assert_eq!(cluster.nodes[0].reads(), 1);
}

#[tokio::test]
async fn before_the_first_topology_requests_fail() {
    let cluster = Cluster::start(1, 1).await;
    let client = Client::builder().seeds(seeds(&cluster)).build().unwrap();
    let error = client.get(&name("s"), b"k").await;
    assert!(matches!(error, Err(ClientError::NoTopology { .. })), "{error:?}");
    let error = client.ready(Duration::from_millis(100)).await;
    let Err(error @ ClientError::NoTopology { .. }) = error else {
        panic!("{error:?}")
    };
    assert!(error.to_string().contains("CLUSTERDOWN"), "{error}");
    tell(&cluster, &[0], "a");
    client.ready(super::harness::PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_client_needs_seeds_or_a_topology() {
    let nowhere = Client::builder().build();
    assert!(matches!(nowhere, Err(ClientError::Configuration { .. })));
    let nowhere = Client::builder().seeds(Vec::<String>::new()).build();
    assert!(matches!(nowhere, Err(ClientError::Configuration { .. })));
}
