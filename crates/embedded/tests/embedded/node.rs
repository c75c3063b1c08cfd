//! A real node, which is a cluster of its own, with the store of the tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_api::{NewPush, NewStore, PushResource, RollbackRequest, StoreResource};
use fondaco_embedded::{Endpoint, FollowOptions, Reader, State};
use fondaco_format::Compression;
use fondaco_model::{StoreKind, VersionNumber};
use fondaco_roles::{Config, Fondaco, Running};
use fondaco_testing::{eventually, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::versions::{STORE, built, store};

pub(crate) const PARTITIONS: u32 = 4;
pub(crate) const KEYS: usize = 2000;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The node, the place of its builds, and a directory for a reader.
pub(crate) struct Node {
    running: Option<Running>,
    config: Config,
    http: SocketAddr,
    pub(crate) dir: TempDir,
}

impl Node {
    /// With an empty store.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(crate) fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let node = Self::start_empty(change);
        node.create(STORE, StoreKind::Batch);
        node
    }

    /// Without a store.
    pub(crate) fn start_empty(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::local(dir.path().join("node"), PARTITIONS.try_into().unwrap());
        config.resp_listen = ([127, 0, 0, 1], 0).into();
        config.http_listen = ([127, 0, 0, 1], 0).into();
        config.loops = 1;
        config.disk_reserve_bytes = 0;
        change(&mut config);
        let mut node = Self {
            running: None,
            http: config.http_listen,
            config,
            dir,
        };
        node.run();
        node
    }

    /// Starts it again, at the same port.
    pub(crate) fn run(&mut self) {
        let running = Fondaco::start(self.config.clone()).unwrap();
        assert!(running.wait_serving(PATIENCE).unwrap());
        self.http = running.http_addr();
        self.config.http_listen = self.http;
        self.running = Some(running);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(running.shutdown());
        }
    }

    pub(crate) fn http(&self) -> String {
        self.http.to_string()
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint {
            token: self.config.token.clone(),
            // A self-signed certificate is its own authority.
            ca: self.config.tls.as_ref().map(|tls| tls.certificate.clone()),
            ..Endpoint::of_http(self.http())
        }
    }

    pub(crate) fn create(&self, name: &str, kind: StoreKind) {
        create(&self.endpoint(), name, kind);
    }

    pub(crate) fn drop_store(&self) {
        let client = self.endpoint().client().unwrap();
        client.delete(&format!("/v1/stores/{STORE}?now=true")).unwrap();
    }

    /// Builds a version in which all values have the mark, and swaps it in.
    pub(crate) fn push(&self, mark: u64) -> VersionNumber {
        self.push_from(&built(self.dir.path(), PARTITIONS, KEYS, mark, Compression::None))
    }

    pub(crate) fn push_from(&self, path: &Path) -> VersionNumber {
        push(&self.endpoint(), path)
    }

    pub(crate) fn rollback(&self) -> VersionNumber {
        let client = self.endpoint().client().unwrap();
        let request = RollbackRequest {
            to: None,
            set: None,
            if_current: None,
        };
        let _: Value = client.post(&format!("/v1/stores/{STORE}/rollback"), &request).unwrap();
        let current = eventually("a current version", || {
            client.store(&store()).unwrap().unwrap().current_version
        });
        VersionNumber::new(current).unwrap()
    }

    /// The directory of a reader.
    pub(crate) fn directory(&self) -> PathBuf {
        self.dir.path().join("reader")
    }

    pub(crate) fn options(&self) -> FollowOptions {
        let mut options = FollowOptions::new(self.endpoint(), store(), self.directory());
        options.poll_interval = Duration::from_millis(50);
        options.reserve_bytes = 0;
        options.fallback = false;
        options
    }

    /// A connection to its RESP port.
    pub(crate) fn redis(&self) -> redis::Connection {
        let address = self.running.as_ref().and_then(Running::resp_addr).unwrap();
        let client = redis::Client::open(format!("redis://{address}")).unwrap();
        client.get_connection().unwrap()
    }

    /// A reader that follows the store.
    pub(crate) fn reader(&self) -> Reader {
        Reader::follow(self.options()).unwrap()
    }
}

pub(crate) fn create(endpoint: &Endpoint, name: &str, kind: StoreKind) {
    let client = endpoint.client().unwrap();
    let new = NewStore {
        kind,
        ..NewStore::batch(name)
    };
    client.post::<StoreResource>("/v1/stores", &new).unwrap();
}

/// Pushes a version that was built, and waits until it is current.
pub(crate) fn push(endpoint: &Endpoint, path: &Path) -> VersionNumber {
    let client = endpoint.client().unwrap();
    let new: NewPush = serde_json::from_value(serde_json::json!({ "source": path })).unwrap();
    let push: PushResource = client.post(&format!("/v1/stores/{STORE}/pushes"), &new).unwrap();
    until("the version to be current", || {
        let found = client.store(&store()).unwrap().unwrap();
        let state = found.push.as_ref().map(|push| (push.state, push.error.clone()));
        assert!(state.as_ref().is_none_or(|(_, error)| error.is_none()), "{state:?}");
        found.current_version == Some(push.version)
    });
    VersionNumber::new(push.version).unwrap()
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a state, and returns the error in the status.
#[track_caller]
pub(crate) fn wait_for_state(reader: &Reader, state: State) -> Option<String> {
    eventually(state.as_str(), || {
        let status = reader.status();
        (status.state == state).then_some(status.error)
    })
}
