//! The admission of processes as nodes of a cluster, on a real ZooKeeper.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use fondaco_api::Role;
use fondaco_model::NodeId;
use fondaco_roles::{Config, Fondaco, RoleError, Running};
use fondaco_testing::ZooKeeper;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::zookeeper;
use crate::single::{Client, config, until};

fn member(servers: &str, root: &str, role: Role, dir: &Path) -> Config {
    let mut config = config(dir);
    config.role = role;
    config.zookeeper = Some(zookeeper(servers, root));
    config
}

fn stop(running: Running) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(running.shutdown());
}

/// The reason that a started node must stop.
fn failure(running: &Running) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let patience = std::time::Duration::from_secs(60);
    let error = runtime.block_on(async { tokio::time::timeout(patience, running.failed()).await });
    error.expect("the node does not stop").to_string()
}

#[test]
fn nodes_that_must_not_take_part_report_why() {
    let server = ZooKeeper::start();
    let servers = server.address();
    let dirs: Vec<TempDir> = (0..5).map(|_| TempDir::new().unwrap()).collect();
    let controller = member(&servers, "/fondaco/one", Role::Controller, dirs[0].path());
    let controller = Fondaco::start(controller).unwrap();
    let mut numbered = member(&servers, "/fondaco/one", Role::Node, dirs[1].path());
    numbered.member.id = NodeId::new(1);
    let first = Fondaco::start(numbered).unwrap();
    assert_eq!(Client::new(first.http_addr()).get("/v1/status")["node"], 1);

    // Two nodes claim one number: its owner keeps it.
    let mut claim = member(&servers, "/fondaco/one", Role::Node, dirs[2].path());
    claim.member.id = NodeId::new(1);
    let error = Fondaco::start(claim).err().unwrap().to_string();
    assert!(error.contains("node number 1 belongs to another node"), "{error}");

    // The data directory of another cluster.
    let elsewhere = member(&servers, "/fondaco/two", Role::Controller, dirs[3].path());
    let elsewhere = Fondaco::start(elsewhere).unwrap();
    stop(first);
    let foreign = member(&servers, "/fondaco/two", Role::Node, dirs[1].path());
    // It serves its remembered view, and does not join the other cluster: the entries of its own may have been lost.
    let foreign = Fondaco::start(foreign).unwrap();
    let client = Client::new(foreign.http_addr());
    until("the node to say so", || {
        let (status, readiness) = client.call("GET", "/readyz", Value::Null);
        status == 503 && readiness["reasons"].to_string().contains("belongs to cluster")
    });
    assert_eq!(
        Client::new(elsewhere.http_addr()).get("/v1/nodes")["nodes"],
        serde_json::json!([])
    );
    stop(foreign);
    // Without the remembered view, it serves nothing.
    std::fs::remove_file(dirs[1].path().join("view.json")).unwrap();
    let foreign = member(&servers, "/fondaco/two", Role::Node, dirs[1].path());
    let error = Fondaco::start(foreign).err().unwrap();
    assert!(matches!(error, RoleError::Unfit(_)), "{error}");
    assert!(error.to_string().contains("belongs to cluster"), "{error}");
    stop(elsewhere);

    // A copy of a running node's data directory.
    let first = member(&servers, "/fondaco/one", Role::Node, dirs[1].path());
    let first = Fondaco::start(first).unwrap();
    std::fs::copy(dirs[1].path().join("node.json"), dirs[4].path().join("node.json")).unwrap();
    let copy = member(&servers, "/fondaco/one", Role::Node, dirs[4].path());
    let copy = Fondaco::start(copy).unwrap();
    let error = failure(&copy);
    assert!(
        error.contains("one data directory is a copy of the other") && error.contains(&first.http_addr().to_string()),
        "{error}"
    );
    let client = Client::new(copy.http_addr());
    assert_eq!(client.call("GET", "/readyz", Value::Null).0, 503);
    assert_eq!(
        Client::new(first.http_addr()).call("GET", "/readyz", Value::Null).0,
        200
    );
    stop(copy);
    stop(first);
    stop(controller);
}

#[test]
fn processes_that_start_without_zookeeper_wait_and_report_it() {
    let mut server = ZooKeeper::start();
    let servers = server.address();
    server.kill();
    let dirs: Vec<TempDir> = (0..2).map(|_| TempDir::new().unwrap()).collect();
    let node = Fondaco::start(member(&servers, "/fondaco/late", Role::Node, dirs[0].path())).unwrap();
    let client = Client::new(node.http_addr());
    let readiness = client.done("GET", "/readyz", Value::Null, 503);
    assert!(
        readiness["reasons"][0].as_str().unwrap().contains("coordination"),
        "{readiness}"
    );
    let resp = node.resp_addr().unwrap();
    let first_line = |command: &str| {
        let mut stream = BufReader::new(TcpStream::connect(resp).unwrap());
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line
    };
    for command in ["PING", "GET pymk:1", "SET carts:1 v"] {
        let line = first_line(command);
        assert!(
            line.starts_with("-LOADING ") && line.contains("readyz"),
            "{command}: {line}"
        );
    }
    for command in ["INFO server", "HELLO 2"] {
        let line = first_line(command);
        assert!(line.starts_with(['$', '*']), "{command}: {line}");
    }

    server.restart();
    let controller = member(&servers, "/fondaco/late", Role::Controller, dirs[1].path());
    let controller = Fondaco::start(controller).unwrap();
    until("the node to be ready", || {
        client.call("GET", "/readyz", Value::Null).0 == 200
    });
    assert_eq!(first_line("PING"), "+PONG\r\n");
    stop(node);
    stop(controller);
}

#[test]
fn a_process_that_waits_for_its_cluster_can_be_stopped() {
    // No server listens at this port.
    let dir = TempDir::new().unwrap();
    for role in [Role::Node, Role::Router, Role::Controller] {
        let running = Fondaco::begin(member("127.0.0.1:1", "/fondaco", role, dir.path())).unwrap();
        assert!(!running.wait_serving(std::time::Duration::ZERO).unwrap());
        stop(running);
    }
}
