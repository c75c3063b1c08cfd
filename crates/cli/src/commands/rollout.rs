//! `--to` of `fondaco push` and `deploy`: a built version goes to several clusters, one after the other.
//!
//! The rule for failures: a cluster that cannot be reached before it has begun the push is left out, and the others go
//! on. If the answer to the request that begins the push is lost, it is asked again: the run has an id, so that the push is not
//! begun twice. A cluster that fails later stops the rollout: the version may be to blame. Either way the command fails at the end, and
//! its error says which clusters serve the version, how to go on, and how to go back.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use fondaco_admin::Client;
use fondaco_api::PushResource;
use fondaco_model::StoreName;
use serde::Serialize;

use super::WrongUsage;
use super::bring::{Built, bring, push_of_run, text};
use super::upload::UploadResult;
use crate::control_port::ControlPort;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::INTERVAL;
use crate::refusal::is_refused;

/// The options of a rollout.
#[derive(Debug, Clone, Args)]
pub struct RolloutOptions {
    /// Bring the version to these clusters in this order, each when the one before has swapped it in: the control port of a
    /// process of each, in place of --http. Token and TLS are the same for all
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',')]
    to: Vec<String>,

    /// How long to wait before the next cluster of --to. It is not begun if the one before was rolled back in that time
    #[arg(long, value_name = "TIME", requires = "to", value_parser = output::parse_span_ms)]
    pause: Option<u64>,

    /// An id of this run, for instance a scheduler's: another try with the same id joins the first one, or repeats its answer,
    /// whatever became of it. Each store remembers its last sixteen
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,

    /// Deploy the version even if its content is that of the current one
    #[arg(long)]
    pub again: bool,
}

/// A cluster that a version is brought to.
pub struct Cluster {
    /// How to reach it.
    pub port: ControlPort,
    /// The client of that port.
    pub client: Client,
    /// Why it cannot be reached.
    unreachable: Option<String>,
}

/// The clusters that a version is brought to.
pub struct Rollout {
    clusters: Vec<Cluster>,
    is_several: bool,
    pause: Duration,
    /// The id of the run. To several clusters every run has one.
    run: Option<String>,
}

/// What became of the version in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is current.
    Swapped,
    /// The cluster could not be reached before it had begun.
    Unreachable,
    /// The cluster refused it, or failed to bring it.
    Failed,
    /// A cluster before failed.
    NotBegun,
}

/// The end of a rollout in one cluster, as JSON.
#[derive(Serialize)]
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
pub struct Rolled {
    /// The outcome of each cluster.
    pub clusters: Vec<ClusterOutcome>,
    /// The error that ended it, if one did.
    pub error: Option<anyhow::Error>,
    /// Of a hybrid store: when the first cluster began.
    started_unix_ms: Option<u64>,
}

impl Rollout {
    /// The clusters of `--to`, or the one of this port.
    pub fn new(options: &RolloutOptions, port: &ControlPort) -> anyhow::Result<Self> {
        let at = |address: &String| ControlPort {
            http: Some(address.clone()),
            resp: None,
            ..port.clone()
        };
        let ports = match &options.to[..] {
            [] => vec![port.clone()],
            to => to.iter().map(at).collect(),
        };
        for (number, address) in options.to.iter().enumerate() {
            if options.to[..number].contains(address) {
                return Err(WrongUsage(format!("--to names {address} twice")).into());
            }
        }
        let cluster = |port: ControlPort| {
            Ok(Cluster {
                client: port.client()?,
                port,
                unreachable: None,
            })
        };
        Ok(Self {
            clusters: ports.into_iter().map(cluster).collect::<anyhow::Result<_>>()?,
            is_several: !options.to.is_empty(),
            pause: Duration::from_millis(options.pause.unwrap_or(0)),
            run: options.run.clone().or_else(|| (!options.to.is_empty()).then(new_run)),
        })
    }

    /// The id of the run, if it has one.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// Whether clusters were named by `--to`.
    pub fn is_several(&self) -> bool {
        self.is_several
    }

    /// Whether each cluster knows the run: then no version is needed.
    pub fn know(&self, store: &StoreName) -> bool {
        let known = |cluster: &Cluster| push_of_run(&cluster.client, store, self.run()?).ok()?;
        self.clusters.iter().all(|cluster| known(cluster).is_some())
    }

    /// The first cluster that can be reached.
    pub fn first(&self) -> &Cluster {
        let mut reached = self.clusters.iter().filter(|cluster| cluster.unreachable.is_none());
        reached.next().unwrap_or(&self.clusters[0])
    }

    /// Asks each cluster whether it would take the version. Those of several that cannot be reached are left out.
    pub fn check<T>(
        &mut self,
        output: &Output,
        check: impl Fn(&Cluster) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let mut found = Vec::new();
        let mut last_error = None;
        for cluster in &mut self.clusters {
            match check(cluster) {
                Ok(one) => found.push(one),
                Err(error) if !self.is_several => return Err(error),
                Err(error) if is_away(&error) => {
                    cluster.unreachable = Some(output::told(&error));
                    output.note(&format!("{}; going on without it", output::told(&error)));
                    last_error = Some(error);
                }
                Err(error) => return Err(error).with_context(|| format!("{} refuses", cluster.client.address())),
            }
        }
        match last_error {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Brings the version to each cluster that can be reached, after `prepare`.
    pub fn bring(
        &self,
        built: &Built<'_>,
        interrupt: &Interrupt,
        output: &Output,
        prepare: impl Fn(&Cluster) -> anyhow::Result<()>,
    ) -> Rolled {
        let mut built = *built;
        let mut before = None;
        let mut error = None;
        let mut outcomes: Vec<ClusterOutcome> = self.clusters.iter().map(ClusterOutcome::of).collect();
        let all = self.clusters.iter().zip(&mut outcomes);
        for (cluster, outcome) in all.filter(|(cluster, _)| cluster.unreachable.is_none()) {
            if let Some((before, version)) = before
                && let Err(stopped) = self.pause_after(before, &built, version, interrupt, output)
            {
                error = Some(stopped);
                break;
            }
            let mut begun = false;
            let brought = prepare(cluster).and_then(|()| bring(&cluster.client, &built, &mut begun, interrupt, output));
            match brought {
                Ok(deployed) => {
                    // The versions of all clusters read the same events.
                    let started = deployed.push.started_unix_ms;
                    built.started_unix_ms = built.started_unix_ms.or(built.is_hybrid.then_some(started));
                    before = Some((cluster, deployed.push.version));
                    outcome.state = State::Swapped;
                    (outcome.push, outcome.upload) = (Some(deployed.push), deployed.upload);
                    if self.is_several {
                        output.note(outcome.text(&built).trim_end());
                    }
                }
                Err(away) if self.is_several && !begun && is_away(&away) => {
                    (outcome.state, outcome.error) = (State::Unreachable, Some(output::told(&away)));
                    output.note(&format!("{}; going on without it", output::told(&away)));
                }
                Err(failed) => {
                    (outcome.state, outcome.error) = (State::Failed, Some(output::told(&failed)));
                    error = Some(failed);
                    break;
                }
            }
        }
        if error.is_none() && outcomes.iter().any(|outcome| outcome.state != State::Swapped) {
            error = Some(anyhow::anyhow!("not all clusters can be reached"));
        }
        Rolled {
            clusters: outcomes,
            error,
            started_unix_ms: built.started_unix_ms,
        }
    }

    /// Waits after a cluster, and then makes sure that it still serves the version.
    fn pause_after(
        &self,
        cluster: &Cluster,
        built: &Built<'_>,
        version: u64,
        interrupt: &Interrupt,
        output: &Output,
    ) -> anyhow::Result<()> {
        if !self.pause.is_zero() {
            output.note(&format!("waiting for {}", output::duration(self.pause)));
        }
        let end = Instant::now() + self.pause;
        loop {
            if interrupt.is_asked() {
                bail!("interrupted between two clusters");
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(INTERVAL));
        }
        let address = cluster.client.address();
        match cluster.client.store(built.store) {
            Ok(Some(store)) if store.current_version == Some(version) => Ok(()),
            Ok(_) => bail!("{address} does not serve version {version} any more: another one was swapped in"),
            // A data center that is down does not stop the others.
            Err(error) if is_away(&error) => {
                output.note(&output::told(&error));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The clusters of these outcomes that have this state.
    pub fn in_state<'a>(&'a self, rolled: &'a Rolled, state: State) -> impl Iterator<Item = &'a Cluster> {
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

/// Whether this error means that a data center is down: no process answers, or it has lost its coordination service.
pub fn is_away(error: &anyhow::Error) -> bool {
    ["unreachable", "unavailable"]
        .iter()
        .any(|code| is_refused(error, code))
}

impl Rolled {
    /// Whether some cluster serves the version.
    pub fn has_swapped(&self) -> bool {
        self.clusters.iter().any(|outcome| outcome.state == State::Swapped)
    }

    /// The outcome of each cluster, as text.
    pub fn text(&self, built: &Built<'_>) -> String {
        self.clusters.iter().map(|outcome| outcome.text(built)).collect()
    }

    /// How to go on and how to go back, for a version that is kept at this place.
    pub fn advice(&self, built: &Built<'_>, kept: &str) -> String {
        let addresses = |is_swapped: bool| {
            let clusters = self.clusters.iter();
            let those = clusters.filter(move |outcome| (outcome.state == State::Swapped) == is_swapped);
            those.map(|outcome| &*outcome.cluster)
        };
        let mut text = format!(
            "store {} does not serve the version in every cluster: to go on, fondaco deploy {} {kept} --to {}",
            built.store,
            built.store,
            addresses(false).collect::<Vec<_>>().join(",")
        );
        if built.upload {
            text += " --upload";
        }
        // A cluster that could not be reached may have begun the push all the same. One that failed has ended this run.
        let is_in = |state| self.clusters.iter().any(|outcome| outcome.state == state);
        if let Some(run) = built.run.filter(|_| is_in(State::Unreachable) && !is_in(State::Failed)) {
            text += &format!(" --run {run}");
        }
        for (option, time) in [("as-of", built.as_of_unix_ms), ("started", self.started_unix_ms)] {
            text += &time.map_or_else(String::new, |ms| format!(" --{option} {ms}"));
        }
        for address in addresses(true) {
            text += &format!("; to go back, fondaco rollback {} --http {address}", built.store);
        }
        text
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

    fn text(&self, built: &Built<'_>) -> String {
        let address = &self.cluster;
        match (&self.push, &self.error) {
            (Some(push), _) => format!("{address}: {}", text(built.store, push)),
            (None, Some(error)) => format!("{address}: {error}\n"),
            (None, None) => format!("{address}: not begun\n"),
        }
    }
}
