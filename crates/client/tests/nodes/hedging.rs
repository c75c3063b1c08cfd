//! Second requests to other nodes when the first takes long: when, to whom, and how many.

use std::time::Duration;

use fondaco_client::read::SteeringPolicy;
use fondaco_client::{Client, ReadOptions};
use tokio::time::Instant;

use crate::harness::{Cluster, keys, name, value_of, within};
use crate::server::Behaviour;

/// Much longer than any answer of a node that is not slow.
const PAUSE: Duration = Duration::from_secs(3);

/// Teaches the client how long a healthy node takes for one key.
async fn learn(client: &Client) {
    for (store, key) in keys(300) {
        client.get(&store, key.as_bytes()).await.unwrap();
    }
    assert!(client.stats().hedge_after_us.is_some());
}

#[tokio::test]
async fn a_slow_node_is_not_waited_for() {
    let cluster = Cluster::start(3, 3).await;
    let client = cluster.client().await;
    learn(&client).await;
    let before = client.stats().reads;
    cluster.nodes[0].behave(Behaviour::Slow(PAUSE));
    // As many of these as the budget allows go to the slow node first.
    for (store, key) in keys(12) {
        let began = Instant::now();
        assert_eq!(client.get(&store, key.as_bytes()).await, Ok(Some(value_of(1, &key))));
        assert!(began.elapsed() < PAUSE / 2, "{:?}", began.elapsed());
    }
    let after = client.stats().reads;
    assert!(after.hedges > before.hedges, "{after:?}");
    assert!(after.hedges_won > before.hedges_won, "{after:?}");
}

#[tokio::test]
async fn the_first_answer_wins_and_the_second_changes_nothing() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    learn(&client).await;
    let slow = Duration::from_millis(100);
    cluster.nodes.iter().for_each(|node| node.behave(Behaviour::Slow(slow)));
    let before = cluster.reads();
    let value = client.get(&name("s"), b"k").await;
    assert_eq!(value, Ok(Some(value_of(1, "k"))));
    assert_eq!(cluster.reads() - before, 1, "the second is still asleep: {value:?}");
    cluster.nodes.iter().for_each(|node| node.behave(Behaviour::Answer));
    let next = client.get_many(&keys(20), &within(5_000)).await.unwrap();
    assert!(
        next.values.iter().all(Result::is_ok),
        "the late answer is nobody else's"
    );
}

#[tokio::test]
async fn no_more_are_sent_than_the_budget_has() {
    let cluster = Cluster::start(2, 2).await;
    let policy = SteeringPolicy {
        hedge_share: 0.05,
        hedge_stock_max: 20,
        ..SteeringPolicy::default()
    };
    let client = cluster.connected(cluster.builder().steering(policy)).await;
    learn(&client).await;
    let before = client.stats().reads;
    let slow = Duration::from_millis(20);
    cluster.nodes.iter().for_each(|node| node.behave(Behaviour::Slow(slow)));
    for (store, key) in keys(100) {
        client.get(&store, key.as_bytes()).await.unwrap();
    }
    let after = client.stats().reads;
    let (hedges, first) = (after.hedges - before.hedges, after.requests - before.requests);
    assert!(hedges <= 20 + first / 20, "{hedges} of {first}");
    assert!(after.hedges_denied > before.hedges_denied, "{after:?}");
}

#[tokio::test]
async fn who_does_not_want_hedges_gets_none_and_neither_does_a_key_with_one_replica() {
    let (alone, two) = (Cluster::start(2, 1).await, Cluster::start(2, 2).await);
    for (cluster, hedge) in [(alone, true), (two, false)] {
        let client = cluster.client().await;
        learn(&client).await;
        let before = client.stats().reads.hedges;
        let slow = Duration::from_millis(50);
        cluster.nodes.iter().for_each(|node| node.behave(Behaviour::Slow(slow)));
        let options = ReadOptions { hedge, ..within(5_000) };
        let reply = client.get_many(&keys(1), &options).await.unwrap();
        assert_eq!(reply.hedged, 0);
        assert_eq!(client.stats().reads.hedges, before);
    }
}
