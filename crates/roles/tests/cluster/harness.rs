//! Development clusters to test: three nodes, a router and two controllers.

use std::path::{Path, PathBuf};

use fondaco_roles::{Config, Dev, DevConfig, RoleError, ZooKeeperConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::resp::Resp;
use crate::single::{Client, config, eventually, until};

pub struct TestCluster {
    /// The control port of the router.
    pub client: Client,
    pub dir: TempDir,
    dev: Option<Dev>,
}

impl TestCluster {
    /// Three nodes with two replicas of each partition, on embedded coordination.
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_of(3, 1, change)
    }

    /// A cluster with this number of nodes, which are spread over this number of zones in turn; the router is in the first zone.
    pub fn start_of(nodes: u32, zones: u32, change: impl FnOnce(&mut Config)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut common = config(dir.path());
        common.cluster.replicas = 2;
        common.cluster.nodes_initial = nodes;
        change(&mut common);
        let dev = Dev::start(DevConfig {
            common,
            nodes,
            controllers: 2,
            routers: 1,
            zones,
            groups: 1,
        })
        .unwrap();
        let (_, http) = dev.addresses().unwrap();
        let cluster = Self {
            client: Client::new(http),
            dir,
            dev: Some(dev),
        };
        cluster.wait_ready();
        cluster
    }

    fn dev(&self) -> &Dev {
        self.dev.as_ref().unwrap()
    }

    /// A connection to the router's RESP port.
    pub fn resp(&self) -> Resp {
        self.resp_of("router-1")
    }

    /// A connection to the RESP port of a member.
    pub fn resp_of(&self, name: &str) -> Resp {
        let members = self.dev().members();
        let member = members.iter().find(|member| member.name == name).unwrap();
        Resp::at(member.resp.as_ref().unwrap())
    }

    /// The value of a member's metric.
    pub fn metric(&self, member: &str, name: &str) -> u64 {
        let (_, _, text) = self.member(member).raw("GET", "/metrics", &[]).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap()
    }

    /// The control port of a member.
    pub fn member(&self, name: &str) -> Client {
        let members = self.dev().members();
        let member = members.iter().find(|member| member.name == name).unwrap();
        Client::new(member.http.as_ref().unwrap().parse().unwrap())
    }

    pub fn stop(&self, name: &str) {
        self.dev().stop_member(name).unwrap();
    }

    pub fn start_again(&self, name: &str) {
        eventually("the port to be free", || match self.dev().start_member(name) {
            // A connection of some other test uses the port for a moment.
            Err(RoleError::Listen { .. }) => None,
            started => {
                started.unwrap();
                Some(())
            }
        });
    }

    /// The data directory of a member.
    pub fn data(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The running members that have partitions.
    pub fn nodes(&self) -> Vec<String> {
        let members = self.dev().members().into_iter();
        let nodes = members.filter(|member| member.running && member.name.starts_with("node-"));
        nodes.map(|member| member.name).collect()
    }

    /// Waits until every running node has everything that it should, and the router knows.
    pub fn wait_ready(&self) {
        let names = self.nodes().into_iter().chain(["router-1".to_owned()]);
        for name in names {
            let client = self.member(&name);
            until("the members to be ready", || {
                client.call("GET", "/readyz", Value::Null).0 == 200
            });
        }
    }

    /// Waits until no node is late with the store.
    pub fn wait_no_node_late(&self) {
        until("no node to be late", || {
            let store = self.client.get("/v1/stores/pymk");
            store["late"] == json!([])
        });
    }

    /// Creates the store of the tests.
    pub fn create(&self, more: Value) {
        let mut store = json!({"name": "pymk", "backups": 1});
        for (key, value) in more.as_object().unwrap() {
            store[key] = value.clone();
        }
        self.client.done("POST", "/v1/stores", store, 201);
    }

    /// Waits until every member serves the same complete build.
    pub fn all_serve(&self, build: u64, padding: usize) {
        for name in self.nodes().into_iter().chain(["router-1".to_owned()]) {
            let client = self.member(&name);
            let found = client.served_build(padding);
            assert_eq!(found, build, "{name}");
        }
    }

    /// The name of the leading controller.
    pub fn leader(&self) -> String {
        eventually("a leader", || {
            let cluster = self.client.get("/v1/cluster");
            let leader = cluster["leader"].as_str()?.to_owned();
            let members = self.dev().members();
            let member = members
                .into_iter()
                .find(|member| member.http.as_ref() == Some(&leader))?;
            Some(member.name)
        })
    }

    pub fn shutdown(&mut self) {
        if let Some(dev) = self.dev.take() {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(dev.shutdown());
        }
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// The names of the partition files in a directory of a version.
pub fn chunk_files(dir: &Path) -> Vec<String> {
    let names = crate::single::names(dir).into_iter();
    names
        .filter(|name| name.ends_with(".data") || name.ends_with(".index"))
        .collect()
}

pub fn zookeeper(servers: &str, root: &str) -> ZooKeeperConfig {
    ZooKeeperConfig {
        connect: servers.to_owned(),
        root: root.to_owned(),
        session_timeout: std::time::Duration::from_secs(2),
        auth: None,
        ca: None,
        identity: None,
    }
}
