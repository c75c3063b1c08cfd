//! A rollout: a built version goes to several clusters, one after the other.
//!
//! The rule for failures: a cluster that cannot be reached before it has begun the push is left out, and the others
//! continue. If the answer to the request that begins the push is lost, it is asked again: the run has an id, so that the push is not
//! begun twice. A cluster that fails later stops the rollout: the version may be to blame. Either way the job fails at the end, and
//! its outcome says which clusters serve the version, how to continue, and how to roll back.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use fondaco_admin::{Client, Endpoint};
use fondaco_api::PushResource;
use fondaco_model::{CanaryTerms, Gates, StoreName};
use serde::Serialize;

use crate::checks::Checks;
use crate::cluster_deploy::{Built, deploy_to_cluster, push_of_run};
use crate::error::{PushError, with_causes};
use crate::observer::{INTERVAL, Job, Note};
use crate::upload::UploadResult;

/// The clusters of a push or a deploy.
#[derive(Debug, Clone)]
pub struct Clusters {
    /// The endpoints, in order: each cluster is begun when the one before has swapped the version in. At least one.
    pub endpoints: Vec<Endpoint>,
    /// Whether they are named one by one, so that a cluster that cannot be reached is left out. One cluster may be, too.
    pub is_several: bool,
    /// The pause before the next cluster. It is not begun if the one before was rolled back in that time.
    pub pause: Duration,
    /// An id of this run, for instance a scheduler's: another try with the same id joins the first one, or repeats its answer,
    /// whatever became of it. Each store remembers its last sixteen. Several clusters get a new one if it is `None`.
    pub run: Option<String>,
    /// Whether the version is deployed even if its content is that of the current one.
    pub again: bool,
    /// The terms of the canary in each cluster, if there is to be one.
    pub canary: Option<CanaryTerms>,
    /// Gates beside those of the store.
    pub gates: Gates,
    /// The checks of this program before the version goes live, in each cluster.
    pub checks: Checks,
}

impl Clusters {
    /// One cluster.
    pub fn one(endpoint: Endpoint) -> Self {
        Self {
            endpoints: vec![endpoint],
            is_several: false,
            pause: Duration::ZERO,
            run: None,
            again: false,
            canary: None,
            gates: Gates::default(),
            checks: Checks::default(),
        }
    }
}

/// A cluster that a version is deployed to.
pub(crate) struct Cluster {
    /// The way to reach it.
    pub(crate) endpoint: Endpoint,
    /// The client of its control port.
    pub(crate) client: Client,
    /// Why it cannot be reached.
    unreachable: Option<String>,
}

/// The clusters that a version is deployed to, with their clients.
pub(crate) struct Rollout {
    clusters: Vec<Cluster>,
    pub(crate) is_several: bool,
    pub(crate) again: bool,
    pub(crate) canary: Option<CanaryTerms>,
    /// Gates beside those of the store.
    pub(crate) gates: Gates,
    pub(crate) checks: Checks,
    pause: Duration,
    /// The id of the run. To several clusters every run has one.
    run: Option<String>,
}

/// The outcome for the version in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is current.
    Swapped,
    /// The cluster could not be reached before it had begun.
    Unreachable,
    /// The cluster refused it, or its push failed.
    Failed,
    /// A cluster before failed.
    NotBegun,
}

/// The end of a rollout in one cluster, as JSON.
#[derive(Debug, Serialize)]
pub struct ClusterOutcome {
    /// Its control port.
    pub cluster: String,
    /// The state of the version.
    pub state: State,
    /// Why it is not current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The push, with the version's number in this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushResource>,
    /// The upload before it, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadResult>,
}

/// The end of a rollout.
#[derive(Debug)]
pub struct Rolled {
    /// The outcome of each cluster.
    pub clusters: Vec<ClusterOutcome>,
    /// The error that ended it, if one did.
    pub error: Option<PushError>,
    /// Of a hybrid store: when the first cluster began, in milliseconds since 1970.
    pub started_unix_ms: Option<u64>,
}

impl Rollout {
    pub(crate) fn new(clusters: &Clusters) -> Result<Self, PushError> {
        let cluster = |endpoint: &Endpoint| {
            Ok(Cluster {
                client: endpoint.client()?,
                endpoint: endpoint.clone(),
                unreachable: None,
            })
        };
        if clusters.endpoints.is_empty() {
            return Err(PushError::WrongOptions("name at least one cluster".to_owned()));
        }
        Ok(Self {
            clusters: clusters
                .endpoints
                .iter()
                .map(cluster)
                .collect::<Result<_, PushError>>()?,
            is_several: clusters.is_several,
            again: clusters.again,
            canary: clusters.canary.clone(),
            gates: match clusters.checks.is_empty() {
                true => clusters.gates.clone(),
                false => clusters.gates.with_confirmation(),
            },
            checks: clusters.checks.clone(),
            pause: clusters.pause,
            run: clusters.run.clone().or_else(|| clusters.is_several.then(new_run)),
        })
    }

    /// The id of the run, if it has one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// Whether each cluster knows the run: then no version is needed.
    pub(crate) fn know(&self, store: &StoreName) -> bool {
        let known = |cluster: &Cluster| push_of_run(&cluster.client, store, self.run()?).ok()?;
        self.clusters.iter().all(|cluster| known(cluster).is_some())
    }

    /// The first cluster that can be reached.
    pub(crate) fn first(&self) -> &Cluster {
        let mut reached = self.clusters.iter().filter(|cluster| cluster.unreachable.is_none());
        reached.next().unwrap_or(&self.clusters[0])
    }

    /// Asks each cluster whether it would take the version. Those of several that cannot be reached are left out.
    pub(crate) fn check<T>(
        &mut self,
        job: Job<'_>,
        check: impl Fn(&Cluster) -> Result<T, PushError>,
    ) -> Result<Vec<T>, PushError> {
        let mut found = Vec::new();
        let mut last_error = None;
        for cluster in &mut self.clusters {
            if job.is_cancelled() {
                return Err(PushError::Cancelled("interrupted before anything was built".to_owned()));
            }
            match check(cluster) {
                Ok(one) => found.push(one),
                Err(error) if !self.is_several => return Err(error),
                Err(error) if error.is_away() => {
                    cluster.unreachable = Some(with_causes(&error));
                    job.note(Note::ClusterLeftOut(&error));
                    last_error = Some(error);
                }
                Err(error) => return Err(error.within(format!("{} refuses", cluster.client.address()))),
            }
        }
        match last_error {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Deploys the version to each cluster that can be reached, after `prepare`.
    pub(crate) fn deploy(
        &self,
        built: &Built<'_>,
        job: Job<'_>,
        prepare: impl Fn(&Cluster) -> Result<(), PushError>,
    ) -> Rolled {
        let mut built = *built;
        let mut before = None;
        let mut error = None;
        let mut outcomes: Vec<ClusterOutcome> = self.clusters.iter().map(ClusterOutcome::of).collect();
        let all = self.clusters.iter().zip(&mut outcomes);
        for (cluster, outcome) in all.filter(|(cluster, _)| cluster.unreachable.is_none()) {
            if let Some((before, version)) = before
                && let Err(stopped) = self.pause_after(before, &built, version, job)
            {
                error = Some(stopped);
                break;
            }
            let mut begun = false;
            let deployed = prepare(cluster).and_then(|()| deploy_to_cluster(&cluster.client, &built, &mut begun, job));
            match deployed {
                Ok(deployed) => {
                    // The versions of all clusters read the same events.
                    let started = deployed.push.started_unix_ms;
                    built.started_unix_ms = built.started_unix_ms.or(built.is_hybrid.then_some(started));
                    before = Some((cluster, deployed.push.version));
                    outcome.state = State::Swapped;
                    (outcome.push, outcome.upload) = (Some(deployed.push), deployed.upload);
                    if self.is_several {
                        job.note(Note::ClusterEnded {
                            store: built.store,
                            outcome,
                        });
                    }
                }
                Err(away) if self.is_several && !begun && away.is_away() => {
                    (outcome.state, outcome.error) = (State::Unreachable, Some(with_causes(&away)));
                    job.note(Note::ClusterLeftOut(&away));
                }
                Err(failed) => {
                    (outcome.state, outcome.error) = (State::Failed, Some(with_causes(&failed)));
                    error = Some(failed);
                    break;
                }
            }
        }
        if error.is_none() && outcomes.iter().any(|outcome| outcome.state != State::Swapped) {
            error = Some(PushError::Unfit("not all clusters can be reached".to_owned()));
        }
        Rolled {
            clusters: outcomes,
            error,
            started_unix_ms: built.started_unix_ms,
        }
    }

    /// Waits after a cluster, and then makes sure that it still serves the version.
    fn pause_after(&self, cluster: &Cluster, built: &Built<'_>, version: u64, job: Job<'_>) -> Result<(), PushError> {
        if !self.pause.is_zero() {
            job.note(Note::Pausing(self.pause));
        }
        let end = Instant::now() + self.pause;
        loop {
            if job.is_cancelled() {
                return Err(PushError::Cancelled("interrupted between two clusters".to_owned()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(INTERVAL));
        }
        let address = cluster.client.address();
        match cluster.client.store(built.store).map_err(PushError::from) {
            Ok(Some(store)) if store.current_version == Some(version) => Ok(()),
            Ok(_) => Err(PushError::Failed(format!(
                "{address} does not serve version {version} any more: another one was swapped in"
            ))),
            // A data center that is down does not stop the others.
            Err(error) if error.is_away() => {
                job.note(Note::ClusterAway(&error));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The clusters of these outcomes that have this state.
    pub(crate) fn in_state<'a>(&'a self, rolled: &'a Rolled, state: State) -> impl Iterator<Item = &'a Cluster> {
        let all = self.clusters.iter().zip(&rolled.clusters);
        all.filter(move |(_, outcome)| outcome.state == state)
            .map(|(cluster, _)| cluster)
    }
}

/// An id that no other run has.
fn new_run() -> String {
    // The operating system supplies the random keys of `RandomState`.
    format!("push-{:016x}", RandomState::new().build_hasher().finish())
}

impl Rolled {
    /// Whether some cluster serves the version.
    pub fn has_swapped(&self) -> bool {
        self.clusters.iter().any(|outcome| outcome.state == State::Swapped)
    }
}

impl ClusterOutcome {
    /// The outcome if nothing is done any more.
    fn of(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.client.address().to_owned(),
            state: match cluster.unreachable {
                Some(_) => State::Unreachable,
                None => State::NotBegun,
            },
            error: cluster.unreachable.clone(),
            push: None,
            upload: None,
        }
    }
}
