//! The store of the tests: deploys versions of it, and waits for their state.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::Commands;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shape, is_ready};
use super::node::until;
use super::values::{self, STORE};

/// Options of a versioned store whose reads use one replica and must still see every write: so any missed write shows.
pub const READ_ONE: [&str; 8] = [
    "--kind",
    "versioned",
    "--replicas",
    "2",
    "--reads",
    "1",
    "--writes",
    "2",
];

impl Cluster {
    /// Builds a version.
    pub fn build(&self, version: u64) -> PathBuf {
        values::build(self.dir.path(), version, self.shape.partitions)
    }

    /// Creates the store of all tests, with these options.
    pub fn create(&self, options: &[&str]) {
        self.any().done(&[&["store", "create", STORE], options].concat());
    }

    /// Waits until the store takes writes through all of these processes.
    pub fn until_written(&self, names: &[&str]) {
        until("all processes know the store", || {
            let is_taken = |name: &&str| self.get(name).redis().set::<_, _, ()>("s:first", "x").is_ok();
            names.iter().all(is_taken)
        });
    }

    /// Checks that all of these processes answer with these values.
    pub fn assert_read(&self, names: &[&str], values: &BTreeMap<String, u64>) {
        for name in names {
            let mut connection = self.get(name).redis();
            for (key, value) in values {
                assert_eq!(connection.get::<_, Option<u64>>(key), Ok(Some(*value)), "{name}, {key}");
            }
        }
    }

    /// A cluster that serves the first version of the store.
    pub fn serving(shape: Shape) -> Self {
        let cluster = Self::start(shape);
        cluster.create(&[]);
        cluster.deploy(&cluster.build(1));
        cluster
    }

    /// Deploys a built version, and waits for the end.
    pub fn deploy(&self, source: &Path) -> Value {
        self.any().json(&["deploy", STORE, source.to_str().unwrap(), "--quiet"])
    }

    /// Starts to deploy a built version.
    pub fn begin(&self, source: &Path) -> Value {
        self.any().http_post("/v1/stores/s/pushes", json!({ "source": source }))
    }

    /// Waits for the end of the running push, and returns its result.
    pub fn ended(&self) -> Value {
        let mut push = Value::Null;
        let mut told = Instant::now();
        until("the push ends", || {
            push = self.any().http_get("/v1/stores/s/push");
            // If it fails, what it waited for is seen.
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("waits for the push: {push}");
            }
            !matches!(push["state"].as_str(), Some("fetching" | "ready"))
        });
        push
    }

    /// Limits the fetch rate of nodes, so that there is time to interfere; 0 removes the limit.
    pub fn set_rate(&self, bytes_per_second: u64) {
        let change = format!("fetch-rate-bytes-per-second={bytes_per_second}");
        self.any().done(&["config", "set", &change]);
    }

    /// Waits until no node is late with the store.
    pub fn until_no_node_is_late(&self) {
        until("no node is late", || {
            let store = self.any().http_get("/v1/stores/s");
            store["late"].as_array().unwrap().is_empty()
        });
    }

    /// The version directories of a node.
    pub fn versions_on_disk(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.data(name).join("stores").join(STORE))
            .into_iter()
            .flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    /// Waits until a running node holds these versions, complete and served.
    pub fn until_holds(&self, name: &str, versions: &[&str]) {
        let mut found = Vec::new();
        until(&format!("{name} holds {versions:?}"), || {
            found = self.versions_on_disk(name);
            found == versions && is_ready(self.get(name))
        });
    }
}
