//! A rollout: the clusters that a built version goes to, and what became of it in each.
//!
//! Several clusters serve it [together](crate::together), or none does.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use fondaco_admin::{Client, Endpoint};
use fondaco_api::PushResource;
use fondaco_format::Checksum;
use fondaco_model::{CanaryTerms, Gates, PushState, StoreName};
use serde::Serialize;

use crate::checks::Checks;
use crate::cluster_deploy::{Built, ask_again, deploy_to_cluster, push_of_run, push_path, source_url};
use crate::error::{PushError, with_causes};
use crate::observer::{Job, Note};
use crate::together;
use crate::upload::UploadResult;

/// The clusters of a push or a deploy.
#[derive(Debug, Clone)]
pub struct Clusters {
    /// The endpoints, in the order in which they swap the version in. At least one.
    pub endpoints: Vec<Endpoint>,
    /// Whether all of them fetch the version before the first one swaps it in, and all or none serve it. One cluster may be named so, too.
    pub is_several: bool,
    /// Of several: the pause between the swaps of two clusters.
    pub pause: Duration,
    /// Of several: whether a cluster that fails, or cannot be reached, is left out.
    pub partial: bool,
    /// Of several: how long a cluster that does not answer is asked again.
    pub retry_time: Duration,
    /// An id of this run, for instance a scheduler's: another try with the same id joins the first one, or repeats its answer,
    /// whatever became of it. Each store remembers its last sixteen. Several clusters get a new one if it is `None`.
    pub run: Option<String>,
    /// Whether the version is deployed even if its content is that of the current one.
    pub again: bool,
    /// The terms of the canary in each cluster, if there is to be one.
    pub canary: Option<CanaryTerms>,
    /// Gates beside those of the store.
    pub gates: Gates,
    /// Whether the version goes live while nodes copy it.
    pub serve_while_copying: bool,
    /// The checks of this program before the version goes live, in each cluster.
    pub checks: Checks,
}

impl Clusters {
    /// The usual time for which a cluster that does not answer is asked again.
    pub const RETRY_TIME: Duration = Duration::from_secs(60);

    /// One cluster.
    pub fn one(endpoint: Endpoint) -> Self {
        Self {
            endpoints: vec![endpoint],
            is_several: false,
            pause: Duration::ZERO,
            partial: false,
            retry_time: Self::RETRY_TIME,
            run: None,
            again: false,
            canary: None,
            gates: Gates::default(),
            serve_while_copying: false,
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
    /// Why it cannot be reached: it is left out.
    pub(crate) unreachable: Option<String>,
}

/// The clusters that a version is deployed to, with their clients.
pub(crate) struct Rollout {
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) is_several: bool,
    pub(crate) partial: bool,
    pub(crate) retry_time: Duration,
    pub(crate) again: bool,
    pub(crate) canary: Option<CanaryTerms>,
    /// Gates beside those of the store.
    pub(crate) gates: Gates,
    /// Whether the caller has named the gate `confirm`.
    pub(crate) awaits_operator: bool,
    pub(crate) serve_while_copying: bool,
    pub(crate) checks: Checks,
    pub(crate) pause: Duration,
    /// The id of the run, if the caller named one.
    run: Option<String>,
}

/// The first characters of the ids that rollouts to several clusters give their runs.
pub(crate) const RUN_PREFIX: &str = "to-";

/// The outcome for the version in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is current.
    Swapped,
    /// The cluster could not be reached.
    Unreachable,
    /// The cluster refused it, or its push failed.
    Failed,
    /// A gate holds it.
    Held,
    /// It was fetched, and dropped because of another cluster.
    Dropped,
    /// It was current, and was rolled back because of another cluster.
    RolledBack,
    /// The cluster was not asked for it.
    NotBegun,
}

/// The end of a rollout in one cluster, as JSON.
#[derive(Debug, Serialize)]
pub struct ClusterOutcome {
    /// Its control port.
    pub cluster: String,
    /// The state of the version.
    pub state: State,
    /// Why it is not current, or is current though the rollout has failed.
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
            partial: clusters.partial,
            retry_time: clusters.retry_time,
            again: clusters.again,
            canary: clusters.canary.clone(),
            awaits_operator: clusters.gates.need_confirmation(),
            gates: match clusters.checks.is_empty() && !clusters.is_several {
                true => clusters.gates.clone(),
                false => clusters.gates.with_confirmation(),
            },
            serve_while_copying: clusters.serve_while_copying,
            checks: clusters.checks.clone(),
            pause: clusters.pause,
            run: clusters.run.clone(),
        })
    }

    /// The id of the run, if the caller named one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// The run of a rollout: that which the caller named, or, to several clusters, that of an earlier try with the same content which did not come to
    /// its end, or a new one. An earlier try that had failed in a cluster is undone first. `content` identifies the version at this place.
    pub(crate) fn choose_run(
        &self,
        store: &StoreName,
        content: &str,
        place: &str,
    ) -> Result<Option<String>, PushError> {
        if !self.is_several || self.run.is_some() {
            return Ok(self.run.clone());
        }
        let source = source_url(place)?;
        let prefix = format!("{RUN_PREFIX}{}-", Checksum::of(content.as_bytes()));
        let last = |cluster: &Cluster| cluster.client.get::<PushResource>(&push_path(store)).ok()?.run;
        let runs = self.clusters.iter().filter_map(last);
        let runs: BTreeSet<String> = runs.filter(|run| run.starts_with(&prefix)).collect();
        for run in runs {
            match self.end_of(store, &run, &source) {
                EarlierTry::Ended => {}
                EarlierTry::GoesOn => return Ok(Some(run)),
                EarlierTry::Failed => {
                    for cluster in &self.clusters {
                        // A cluster that does not answer now refuses the new run, too.
                        let _ = together::undo(cluster, store, &run, self.partial);
                    }
                }
            }
        }
        // The operating system supplies the random keys of `RandomState`.
        let number = RandomState::new().build_hasher().finish();
        Ok(Some(format!("{prefix}{number:016x}")))
    }

    /// The outcome of an earlier try, whose version is at this source too.
    fn end_of(&self, store: &StoreName, run: &str, source: &str) -> EarlierTry {
        let (mut goes_on, mut is_served, mut has_failed) = (false, false, false);
        for cluster in &self.clusters {
            let Ok(Some(push)) = push_of_run(&cluster.client, store, run) else {
                continue;
            };
            match push.state {
                PushState::Fetching => {
                    goes_on = true;
                    // The directory of an earlier build is deleted.
                    has_failed |= push.source.starts_with("file:") && push.source != source;
                }
                PushState::Ready => goes_on = true,
                PushState::Held if push.awaits_confirmation => goes_on = true,
                PushState::Held | PushState::Failed | PushState::Cancelled => has_failed = true,
                PushState::Swapped => is_served |= can_go_back(cluster, store, &push),
            }
        }
        match (goes_on, has_failed && !self.partial) {
            (true, false) => EarlierTry::GoesOn,
            (true, true) => EarlierTry::Failed,
            (false, true) if is_served => EarlierTry::Failed,
            (false, _) => EarlierTry::Ended,
        }
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

    /// Asks each cluster whether it would take the version. Those of several that cannot be reached are asked again, and then left out if
    /// that is allowed.
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
            let checked = match self.is_several {
                false => check(cluster),
                true => ask_again(self.retry_time, job, || check(cluster)),
            };
            match checked {
                Ok(one) => found.push(one),
                Err(error) if !self.is_several => return Err(error),
                Err(error) if error.is_away() && self.partial => {
                    cluster.unreachable = Some(with_causes(&error));
                    job.note(Note::ClusterLeftOut(&error));
                    last_error = Some(error);
                }
                Err(error) if error.is_away() => {
                    return Err(
                        error.within("nothing was begun; to leave out clusters that cannot be reached: --partial")
                    );
                }
                Err(error) => return Err(error.within(format!("{} refuses", cluster.client.address()))),
            }
        }
        match last_error {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Deploys the version to the clusters, after `prepare` in each.
    pub(crate) fn deploy(
        &self,
        built: &Built<'_>,
        job: Job<'_>,
        prepare: impl Fn(&Cluster) -> Result<(), PushError>,
    ) -> Rolled {
        if self.is_several {
            return together::deploy(self, built, job, prepare);
        }
        let cluster = &self.clusters[0];
        let mut outcome = ClusterOutcome::of(cluster);
        let deployed = prepare(cluster).and_then(|()| deploy_to_cluster(&cluster.client, built, job));
        let error = match deployed {
            Ok(deployed) => {
                outcome.state = State::Swapped;
                (outcome.push, outcome.upload) = (Some(deployed.push), deployed.upload);
                None
            }
            Err(failed) => {
                (outcome.state, outcome.error) = (State::Failed, Some(with_causes(&failed)));
                Some(failed)
            }
        };
        let started = outcome.push.as_ref().map(|push| push.started_unix_ms);
        Rolled {
            clusters: vec![outcome],
            error,
            started_unix_ms: built.started_unix_ms.or(started.filter(|_| built.is_hybrid)),
        }
    }

    /// The clusters of these outcomes that have this state.
    pub(crate) fn in_state<'a>(&'a self, rolled: &'a Rolled, state: State) -> impl Iterator<Item = &'a Cluster> {
        let all = self.clusters.iter().zip(&rolled.clusters);
        all.filter(move |(_, outcome)| outcome.state == state)
            .map(|(cluster, _)| cluster)
    }
}

/// The outcome of an earlier try of a rollout.
enum EarlierTry {
    /// It came to its end.
    Ended,
    /// It stopped in the middle.
    GoesOn,
    /// It failed in a cluster, and others still have its version.
    Failed,
}

/// Whether a cluster serves the version of a push, and keeps an earlier one.
fn can_go_back(cluster: &Cluster, store: &StoreName, push: &PushResource) -> bool {
    let Ok(Some(store)) = cluster.client.store(store) else {
        return false;
    };
    let mut versions = store.versions.iter();
    // A version that was held has an error: an operator has swapped it in, and it stays.
    let is_of_run = push.error.is_none() && !push.changed_nothing();
    let is_current = is_of_run && store.current_version == Some(push.version);
    is_current && versions.any(|version| version.version < push.version)
}

impl Rolled {
    /// Whether some cluster serves the version.
    pub fn has_swapped(&self) -> bool {
        self.clusters.iter().any(|outcome| outcome.state == State::Swapped)
    }
}

impl ClusterOutcome {
    /// The outcome if nothing is done any more.
    pub(crate) fn of(cluster: &Cluster) -> Self {
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
