//! A reader follows a store of a cluster of several nodes, none of which has all partitions.

use std::fs;
use std::time::Duration;

use fondaco_embedded::{Endpoint, FollowOptions, Reader, State};
use fondaco_format::Compression;
use fondaco_model::StoreKind;
use fondaco_roles::{Config, Dev, DevConfig};
use fondaco_testing::until;

use crate::follow::has;
use crate::node::{KEYS, PATIENCE, create, push, wait_for_state};
use crate::versions::{STORE, built, store};

const PARTITIONS: u32 = 16;

#[test]
fn each_file_comes_from_a_node_that_has_it_and_control_ports_are_asked_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let mut common = Config::local(dir.path().join("cluster"), PARTITIONS.try_into().unwrap());
    common.resp_listen = ([127, 0, 0, 1], 0).into();
    common.http_listen = ([127, 0, 0, 1], 0).into();
    common.loops = 1;
    common.disk_reserve_bytes = 0;
    common.cluster.replicas = 2;
    common.cluster.nodes_initial = 3;
    let dev = Dev::start(DevConfig {
        common,
        nodes: 3,
        routers: 1,
        controllers: 1,
        zones: 1,
        groups: 1,
    })
    .unwrap();
    let http = |name: &str| {
        let member = dev.members().into_iter().find(|member| member.name == name).unwrap();
        Endpoint::of_http(member.http.unwrap())
    };
    let router = Endpoint::of_http(dev.addresses().unwrap().1.to_string());
    until("the routing table", || {
        router.client().unwrap().get::<serde_json::Value>("/v1/routing").is_ok()
    });
    create(&router, STORE, StoreKind::Batch);
    let path = built(dir.path(), PARTITIONS, KEYS, 1, Compression::None);
    let version = push(&router, &path);
    fs::remove_dir_all(&path).unwrap();

    let mut options = FollowOptions::new(http("node-1"), store(), dir.path().join("reader"));
    options.endpoints.push(http("node-2"));
    options.poll_interval = Duration::from_millis(50);
    options.reserve_bytes = 0;
    dev.stop_member("node-1").unwrap();
    let reader = Reader::follow(options.clone()).unwrap();
    reader.wait_for(version, PATIENCE).unwrap();
    has(&reader, 1);
    assert_eq!(reader.snapshot().unwrap().partitions().len(), PARTITIONS as usize);

    // Without a node that has a file, no part of the version is read.
    options.directory = dir.path().join("other");
    dev.stop_member("node-3").unwrap();
    let other = Reader::follow(options).unwrap();
    let error = wait_for_state(&other, State::Retrying).unwrap();
    assert!(error.contains("cannot read"), "{error}");
    assert_eq!(other.version(), None);
    dev.start_member("node-3").unwrap();
    other.wait_for(version, PATIENCE).unwrap();
    has(&other, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(dev.shutdown());
}
