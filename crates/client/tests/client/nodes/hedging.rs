//! Hedging: when, to which nodes, and how many requests are sent.

use std::time::Duration;

use fondaco_client::read::{HealthPolicy, SteeringPolicy};
use fondaco_client::{Client, ReadOptions};
use tokio::time::Instant;

use super::harness::{Cluster, keys, until, value_of, within};
use super::server::Behaviour;

/// Much longer than any answer of a healthy node.
const PAUSE: Duration = Duration::from_secs(3);

/// Teaches the client the latency of a healthy node for one key.
async fn learn(client: &Client) {
    for (store, key) in keys(300) {
        client.get(&store, key.as_bytes()).await.unwrap();
    }
    assert!(client.stats().hedge_after_us.is_some());
}

#[tokio::test]
async fn no_request_waits_for_a_slow_node() {
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
async fn the_first_answer_wins_and_the_second_is_ignored() {
    let cluster = Cluster::start(2, 2).await;
    let client = cluster.client().await;
    learn(&client).await;
    // Finds the node that is asked first for the key.
    let no_hedge = ReadOptions {
        hedge: false,
        ..within(10_000)
    };
    let before = cluster.nodes[0].reads();
    client.get_many(&keys(1), &no_hedge).await.unwrap();
    let first = usize::from(cluster.nodes[0].reads() == before);
    let held = &cluster.nodes[first];
    held.behave(Behaviour::Hold);
    let before = held.reads();
    let reply = client.get_many(&keys(1), &within(10_000)).await.unwrap();
    assert_eq!(reply.values, [Ok(Some(value_of(1, "key-0")))]);
    assert_eq!(
        (reply.hedged, held.reads() - before),
        (1, 0),
        "only the second has answered"
    );
    held.behave(Behaviour::Answer);
    until("the first has answered, too", || held.reads() > before).await;
    let next = client.get_many(&keys(20), &within(10_000)).await.unwrap();
    for (value, (_, key)) in next.values.into_iter().zip(keys(20)) {
        assert_eq!(
            value,
            Ok(Some(value_of(1, &key))),
            "no other request gets the late answer"
        );
    }
}

#[tokio::test]
async fn a_late_node_gets_no_requests_until_it_answers() {
    let cluster = Cluster::start(3, 3).await;
    let policy = HealthPolicy {
        late_us_max: 60_000_000,
        ..HealthPolicy::default()
    };
    let client = cluster.connected(cluster.builder().health(policy)).await;
    learn(&client).await;
    let in_flight = || client.stats().nodes[0].in_flight;
    until("all have answered", || in_flight() == 0).await;
    cluster.nodes[0].behave(Behaviour::Hold);
    for (store, key) in keys(300) {
        assert_eq!(client.get(&store, key.as_bytes()).await, Ok(Some(value_of(1, &key))));
    }
    assert_eq!(in_flight(), 1, "after the first, no other request went to it");
    assert!(client.stats().reads.lates > 0);
    cluster.nodes[0].behave(Behaviour::Answer);
    until("it has answered", || in_flight() == 0).await;
    let before = cluster.nodes[0].reads();
    client.get_many(&keys(300), &within(10_000)).await.unwrap();
    assert!(cluster.nodes[0].reads() > before, "it is asked again");
}

#[tokio::test]
async fn hedges_stay_within_the_budget() {
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
async fn no_hedges_when_disabled_or_with_one_replica() {
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
