//! The end of a push or a deploy: as JSON, as text, and as an error with the next step.

use std::time::Duration;

use anyhow::bail;
use fondaco_api::PushResource;
use fondaco_model::StoreName;
use fondaco_push::{BuildResult, ClusterOutcome, Deployed, Outcome, PushError, State, UploadResult};
use serde::Serialize;

use crate::output::{self, Output};

/// The result of a push to one cluster, as JSON.
#[derive(Serialize)]
pub struct PushResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<&'a BuildResult>,
    push: Option<PushResource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<UploadResult>,
}

impl<'a> PushResult<'a> {
    /// The result of a push that changed nothing.
    pub fn of_dry_run(build: &'a BuildResult) -> Self {
        Self {
            build: Some(build),
            push: None,
            upload: None,
        }
    }
}

/// The result of a push to several clusters, as JSON.
#[derive(Serialize)]
struct RolloutResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<BuildResult>,
    clusters: Vec<ClusterOutcome>,
}

/// Prints the end of a push, or of a deploy.
pub fn finish(mut outcome: Outcome, is_several: bool, is_deploy: bool, output: &Output) -> anyhow::Result<()> {
    let name = outcome.store.clone();
    let error = outcome.rolled.error.take();
    if is_several {
        let clusters = outcome.rolled.clusters.iter();
        let text: String = clusters.map(|cluster| cluster_text(&name, cluster)).collect();
        let advice = outcome.kept.as_ref().map(|kept| advice(&outcome, kept));
        let (build, clusters) = (outcome.build, outcome.rolled.clusters);
        output.result(&RolloutResult { build, clusters }, |_| text)?;
        return match (error, advice) {
            (Some(error), Some(advice)) => Err(anyhow::Error::new(error).context(advice)),
            (Some(error), None) => Err(error.into()),
            (None, _) => Ok(()),
        };
    }
    if let Some(error) = error {
        let (continues, is_held) = (error.continues(), matches!(error, PushError::Held(_)));
        let error = anyhow::Error::new(error);
        return Err(match outcome.kept.filter(|_| !is_deploy && !is_held) {
            None => error,
            Some(kept) if continues => error.context(format!("it continues from {kept}: keep that until it has ended")),
            Some(kept) => {
                let difference = match outcome.build.as_ref().is_some_and(BuildResult::is_difference) {
                    true => ", as long as the store has the version that it changes",
                    false => "",
                };
                let upload = if outcome.upload { " --upload" } else { "" };
                error.context(format!(
                    "store {name} did not get the version; the build is kept, try again{difference}: \
                     fondaco deploy {name} {kept}{upload}"
                ))
            }
        });
    }
    let one = outcome.rolled.clusters.into_iter().next();
    let Some((push, upload)) = one.and_then(|one| Some((one.push?, one.upload))) else {
        bail!("store {name} did not get the version");
    };
    let text = text(&name, &push);
    match is_deploy {
        true => output.result(&Deployed { push, upload }, |_| text),
        false => {
            let (build, push) = (outcome.build.as_ref(), Some(push));
            output.result(&PushResult { build, push, upload }, |_| text)
        }
    }
}

/// The result of a push, as text.
fn text(name: &StoreName, push: &PushResource) -> String {
    if push.repeated {
        let version = push.version;
        return match &push.run {
            Some(run) => format!("run {run:?} made version {version} of store {name}: nothing else was deployed\n"),
            None => format!(
                "store {name} serves version {version}, whose content is the same: nothing was deployed; to deploy it all the \
                 same: --again\n"
            ),
        };
    }
    let ended = push.ended_unix_ms.unwrap_or(push.started_unix_ms);
    let time = Duration::from_millis(ended.saturating_sub(push.started_unix_ms));
    let mut text = format!(
        "store {name} serves version {}: {} records, fetched and swapped in {}\n",
        push.version,
        output::count(push.records),
        output::duration(time)
    );
    for (other, version) in &push.with {
        text += &format!("store {other} serves version {version}, swapped by the same write\n");
    }
    text
}

/// The end of a push in one of several clusters, as text.
pub fn cluster_text(name: &StoreName, outcome: &ClusterOutcome) -> String {
    let address = &outcome.cluster;
    let because = outcome
        .error
        .as_ref()
        .map_or_else(String::new, |error| format!(": {error}"));
    let version = outcome.push.as_ref().map_or(0, |push| push.version);
    match (outcome.state, &outcome.push) {
        (State::Swapped, Some(push)) if outcome.error.is_none() => format!("{address}: {}", text(name, push)),
        (State::Swapped, _) => format!("{address}: store {name} still serves version {version}{because}\n"),
        (State::Held, _) => format!("{address}: version {version} is held{because}\n"),
        (State::Dropped, _) => format!("{address}: version {version} was dropped{because}\n"),
        (State::RolledBack, _) => format!("{address}: version {version} was rolled back{because}\n"),
        (State::NotBegun, _) => format!("{address}: not begun{because}\n"),
        (State::Failed | State::Unreachable, _) => format!("{address}{because}\n"),
    }
}

/// The commands to continue and to go back, for a version that is kept at this place.
fn advice(outcome: &Outcome, kept: &str) -> String {
    let (name, clusters) = (&outcome.store, &outcome.rolled.clusters);
    let serve = |cluster: &&ClusterOutcome| cluster.state == State::Swapped;
    let others: Vec<&str> = clusters
        .iter()
        .filter(|one| !serve(one))
        .map(|one| &*one.cluster)
        .collect();
    // Clusters that serve the version answer at once.
    let to: Vec<&str> = clusters.iter().map(|one| &*one.cluster).collect();
    let mut text = format!(
        "store {name} does not serve the version in {}: to try again, fondaco deploy {name} {kept} --to {}",
        others.join(", "),
        to.join(",")
    );
    if outcome.upload {
        text += " --upload";
    }
    for (option, time) in [
        ("as-of", outcome.as_of_unix_ms),
        ("started", outcome.rolled.started_unix_ms),
    ] {
        text += &time.map_or_else(String::new, |ms| format!(" --{option} {ms}"));
    }
    for one in clusters {
        let address = &one.cluster;
        text += &match one.state {
            State::Swapped => format!("; {address} serves it: to go back, fondaco rollback {name} --http {address}"),
            State::Unreachable => format!(
                "; it is not known what {address} has: see fondaco versions {name} --http {address} when it answers, and drop the version \
                 with fondaco cancel or rollback"
            ),
            _ => String::new(),
        };
    }
    text
}
