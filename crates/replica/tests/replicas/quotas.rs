//! A store over its space quota takes deletions, and records of other replicas.

use fondaco_model::versioned::Update;
use fondaco_protocol::replica::{ReplicaErrorCode, ReplicaReply};

use crate::cluster::{Cluster, STORE_ID, ask, merging, now_unix_ms, put, putting, quiet, value};

#[test]
fn only_deletions_and_merges_are_taken_over_the_quota() {
    let mut cluster = Cluster::in_memory(2, 4, &quiet());
    put(cluster.node(1), "k", value("a"));
    let other = put(cluster.node(2), "l", value("b"));
    cluster.exceeded_quota_bytes = Some(10);
    cluster.tell();
    let ReplicaReply::Error(error) = ask(cluster.node(1), putting("m", value("c"))) else {
        panic!("it is taken");
    };
    assert_eq!(error.code, ReplicaErrorCode::Quota);
    assert!(error.message.contains("--space-quota"), "{error:?}");
    assert_eq!(ask(cluster.node(1), merging("l", other)), ReplicaReply::Done);
    put(cluster.node(1), "k", Update::delete(now_unix_ms()));
    assert!(cluster.values(1, "k").is_empty());
    cluster.exceeded_quota_bytes = None;
    cluster.tell();
    put(cluster.node(1), "m", value("c"));
}

#[test]
fn a_sample_finds_the_length_of_records() {
    let cluster = Cluster::in_memory(1, 4, &quiet());
    assert_eq!(cluster.node(1).sample_length(STORE_ID), None);
    for number in 0..500 {
        put(cluster.node(1), &format!("k{number}"), value(&"v".repeat(1_000)));
    }
    let length = cluster.node(1).sample_length(STORE_ID).unwrap();
    assert!((1_000.0..1_100.0).contains(&length), "{length}");
}
