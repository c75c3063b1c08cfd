//! Jobs that end otherwise than they should: cancelled in each phase, refused, and without an answer. The nodes are real.

use std::cell::RefCell;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use fondaco_admin::Endpoint;
use fondaco_api::{NewStore, StoreResource};
use fondaco_builder::{BuildOptions, ValueSelection};
use fondaco_model::{PartitionCount, StoreName};
use fondaco_push::{
    CancelToken, Clusters, Deploy, Earlier, Job, Note, Observer, Outcome, Progress, Push, PushError, Pushed, Quiet,
    Rows, State, build, deploy, push,
};
use fondaco_roles::{Config, Fondaco, Running};
use fondaco_storage::Location;
use tempfile::TempDir;

/// With about 100 bytes each, these are more than one piece of an upload.
const ROWS: usize = 40_000;

/// A node, which is a cluster of its own, with an empty store `cities`.
struct Node {
    running: Option<Running>,
    _data: TempDir,
}

impl Node {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = Config::local(data.path(), PartitionCount::ONE);
        config.resp_listen = ([127, 0, 0, 1], 0).into();
        config.http_listen = ([127, 0, 0, 1], 0).into();
        config.loops = 1;
        config.disk_reserve_bytes = 0;
        let running = Fondaco::start(config).unwrap();
        assert!(running.wait_serving(Duration::from_secs(60)).unwrap());
        let node = Self {
            running: Some(running),
            _data: data,
        };
        let client = node.endpoint().client().unwrap();
        client
            .post::<StoreResource>("/v1/stores", &NewStore::batch("cities"))
            .unwrap();
        node
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::of_http(self.running.as_ref().unwrap().http_addr().to_string())
    }

    fn store(&self) -> StoreResource {
        self.endpoint().client().unwrap().store(&cities()).unwrap().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(running.shutdown());
        }
    }
}

/// Cancels the job at a point of it, and notes whether that point came.
struct CancelAt<'a> {
    token: CancelToken,
    progress: &'a dyn Fn(&Progress<'_>) -> bool,
    note: &'a dyn Fn(&Note<'_>) -> bool,
    came: RefCell<bool>,
}

fn at_no_progress(_: &Progress<'_>) -> bool {
    false
}

fn at_no_note(_: &Note<'_>) -> bool {
    false
}

impl CancelAt<'_> {
    fn cancel_if(&self, is_there: bool) {
        if is_there {
            self.token.cancel();
            *self.came.borrow_mut() = true;
        }
    }
}

impl Observer for CancelAt<'_> {
    fn progress(&self, progress: Progress<'_>) {
        self.cancel_if((self.progress)(&progress));
    }

    fn step_ended(&self) {}

    fn note(&self, note: Note<'_>) {
        self.cancel_if((self.note)(&note));
    }
}

/// Runs a job, and cancels it when one of these says so. The job must come to that point.
fn cancelled_at<T>(
    progress: &dyn Fn(&Progress<'_>) -> bool,
    note: &dyn Fn(&Note<'_>) -> bool,
    run: impl FnOnce(Job<'_>) -> T,
) -> T {
    let token = CancelToken::default();
    let observer = CancelAt {
        token: token.clone(),
        progress,
        note,
        came: RefCell::new(false),
    };
    let end = run(Job {
        observer: &observer,
        cancel: &token,
    });
    assert!(*observer.came.borrow(), "the job ended before it could be cancelled");
    end
}

fn undisturbed<T>(run: impl FnOnce(Job<'_>) -> T) -> T {
    run(Job {
        observer: &Quiet,
        cancel: &CancelToken::default(),
    })
}

fn cities() -> StoreName {
    "cities".parse().unwrap()
}

/// A build of rows in this directory, to the directory `version` in it.
fn options(dir: &Path) -> BuildOptions {
    let input = dir.join("cities.csv");
    let rows = (0..ROWS).map(|row| format!("{row},{:0100}\n", row * 7919));
    fs::write(&input, "id,name\n".to_owned() + &rows.collect::<String>()).unwrap();
    let temporary = dir.join("work");
    fs::create_dir(&temporary).unwrap();
    BuildOptions {
        value: ValueSelection::Column("name".to_owned()),
        memory_bytes: 64 << 20,
        ..BuildOptions::new(
            cities(),
            PartitionCount::ONE,
            vec![input.to_str().unwrap().to_owned()],
            "id",
            Location::local(dir.join("version")),
            temporary,
        )
    }
}

/// Builds a version, and returns a deploy of it.
fn built(dir: &Path) -> Deploy {
    let options = options(dir);
    undisturbed(|job| build(&options, &Rows::Records, &[], Earlier::default(), job)).unwrap();
    Deploy::new(cities(), dir.join("version").to_str().unwrap())
}

fn ended(pushed: Result<Pushed, PushError>) -> Outcome {
    match pushed {
        Ok(Pushed::Ended(outcome)) => outcome,
        other => panic!("not the end of a push: {other:?}"),
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_job_cancelled_before_it_begins_builds_nothing() {
    let (node, dir) = (Node::start(), tempfile::tempdir().unwrap());
    let options = options(dir.path());
    let token = CancelToken::default();
    token.cancel();
    let job = Job {
        observer: &Quiet,
        cancel: &token,
    };
    let error = push(&Clusters::one(node.endpoint()), Push::new(options), job).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert!(is_empty(&dir.path().join("work")));
}

#[test]
fn a_cancelled_build_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let token = CancelToken::default();
    token.cancel();
    let job = Job {
        observer: &Quiet,
        cancel: &token,
    };
    let error = build(&options, &Rows::Records, &[], Earlier::default(), job).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert!(is_empty(&dir.path().join("work")) && !dir.path().join("version/manifest.json").exists());
}

#[test]
fn a_cancelled_upload_is_resumed_by_the_next_deploy() {
    let (node, dir) = (Node::start(), tempfile::tempdir().unwrap());
    let clusters = Clusters::one(node.endpoint());
    let version = Deploy {
        upload: true,
        ..built(dir.path())
    };
    let has_arrived = |progress: &Progress<'_>| matches!(progress, Progress::Uploading { .. });
    let outcome = cancelled_at(&has_arrived, &at_no_note, |job| deploy(&clusters, &version, job)).unwrap();
    assert!(outcome.rolled.error.as_ref().unwrap().is_cancelled(), "{outcome:?}");
    assert_eq!(node.store().current_version, None);

    let outcome = undisturbed(|job| deploy(&clusters, &version, job)).unwrap();
    let upload = outcome.rolled.clusters[0].upload.as_ref().unwrap();
    assert!(
        upload.bytes_resumed > 0 && upload.bytes_sent < upload.bytes_total,
        "{upload:?}"
    );
    assert_eq!(node.store().current_version, Some(1));
}

#[test]
fn a_push_cancelled_while_nodes_fetch_ends_in_the_cluster_too() {
    let (node, dir) = (Node::start(), tempfile::tempdir().unwrap());
    let client = node.endpoint().client().unwrap();
    // The fetch would take an hour.
    let slow = serde_json::json!({"fetch-rate-bytes-per-second": 1000, "fetch-rate-floor-bytes-per-second": 1});
    client.patch::<serde_json::Value>("/v1/settings", &slow).unwrap();
    let options = Push {
        keep_at: Some(Location::local(dir.path().join("kept"))),
        ..Push::new(options(dir.path()))
    };
    let is_fetching = |progress: &Progress<'_>| matches!(progress, Progress::Fetching(_));
    let clusters = Clusters::one(node.endpoint());
    let outcome = ended(cancelled_at(&is_fetching, &at_no_note, |job| {
        push(&clusters, options, job)
    }));
    assert!(outcome.rolled.error.as_ref().unwrap().is_cancelled(), "{outcome:?}");
    assert_eq!((outcome.rolled.clusters[0].state, outcome.kept), (State::Failed, None));
    assert_eq!(node.store().current_version, None);
}

#[test]
fn a_rollout_cancelled_in_its_pause_is_given_up_where_it_can_be() {
    let (nodes, dir) = ([Node::start(), Node::start()], tempfile::tempdir().unwrap());
    let clusters = Clusters {
        endpoints: nodes.iter().map(Node::endpoint).collect(),
        is_several: true,
        pause: Duration::from_secs(3600),
        ..Clusters::one(nodes[0].endpoint())
    };
    let version = built(dir.path());
    let is_pausing = |note: &Note<'_>| matches!(note, Note::Pausing(_));
    let outcome = cancelled_at(&at_no_progress, &is_pausing, |job| deploy(&clusters, &version, job)).unwrap();
    assert!(outcome.rolled.error.as_ref().unwrap().is_cancelled(), "{outcome:?}");
    let states = outcome.rolled.clusters.iter().map(|cluster| cluster.state);
    assert_eq!(states.collect::<Vec<_>>(), [State::Swapped, State::Dropped]);
    let error = outcome.rolled.clusters[0].error.as_ref().unwrap();
    assert!(error.contains("keeps no version before"), "{error}");
    assert_eq!(nodes[1].store().current_version, None);
}

#[test]
fn a_cluster_that_does_not_answer_fails_the_push_before_the_build() {
    // It accepts connections, and is silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint {
        request_time_max: Duration::from_millis(200),
        ..Endpoint::of_http(silent.local_addr().unwrap().to_string())
    };
    let dir = tempfile::tempdir().unwrap();
    let options = Push::new(options(dir.path()));
    let error = undisturbed(|job| push(&Clusters::one(endpoint), options, job)).unwrap_err();
    assert_eq!(error.code(), "unreachable", "{error}");
    assert!(is_empty(&dir.path().join("work")));
}

#[test]
fn a_refused_deploy_keeps_the_code_of_the_refusal_and_the_version() {
    let (node, dir) = (Node::start(), tempfile::tempdir().unwrap());
    let version = Deploy {
        store: "towns".parse().unwrap(),
        ..built(dir.path())
    };
    let outcome = undisturbed(|job| deploy(&Clusters::one(node.endpoint()), &version, job)).unwrap();
    let error = outcome.rolled.error.as_ref().unwrap();
    assert_eq!(error.code(), "store_not_found", "{error}");
    assert_eq!(outcome.rolled.clusters[0].state, State::Failed);
    assert_eq!(outcome.kept.as_deref(), dir.path().join("version").to_str());
}

#[test]
fn a_cluster_that_cannot_be_reached_does_not_stop_the_others_if_it_may_be_left_out() {
    let (node, dir) = (Node::start(), tempfile::tempdir().unwrap());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let clusters = Clusters {
        endpoints: vec![Endpoint::of_http(closed.to_string()), node.endpoint()],
        is_several: true,
        partial: true,
        retry_time: Duration::ZERO,
        ..Clusters::one(node.endpoint())
    };
    let outcome = ended(undisturbed(|job| push(&clusters, Push::new(options(dir.path())), job)));
    let states = outcome.rolled.clusters.iter().map(|cluster| cluster.state);
    assert_eq!(states.collect::<Vec<_>>(), [State::Unreachable, State::Swapped]);
    assert!(outcome.rolled.error.is_some() && outcome.kept.is_some());
    assert_eq!(node.store().current_version, Some(1));
}
