//! Several clusters serve a version together: all of them fetch it and pass their gates before the first one swaps it in. If one cannot, or its
//! canary fails, it is dropped, or rolled back, in all.
//!
//! Each cluster holds the version until this program confirms it. What became of it is in the record of its push in each cluster, under the id of the
//! run, and nowhere else: another try of the run reads it there and continues. Requests whose answers are lost are asked again.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fondaco_admin::AdminError;
use fondaco_api::{PushResource, RollbackRequest, StoreResource};
use fondaco_model::{PushState, StoreName, VersionNumber};

use crate::cluster_deploy::{
    Built, Watch, ask_again, begin, confirm, ended, is_end, note_late_nodes, push_of_run, push_path,
};
use crate::error::{PushError, with_causes};
use crate::observer::{INTERVAL, Job, Note};
use crate::rollout::{Cluster, ClusterOutcome, Rolled, Rollout, State};

/// How often the clusters that serve the version are looked at during a pause.
const PAUSE_LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A deploy to several clusters.
struct Together<'a> {
    rollout: &'a Rollout,
    built: Built<'a>,
    job: Job<'a>,
    parts: Vec<Part<'a>>,
}

/// The deploy in one of them.
struct Part<'a> {
    cluster: &'a Cluster,
    /// The push, once it has begun.
    watch: Option<Watch<'a>>,
    /// Since when the cluster does not answer.
    away_since: Option<Instant>,
    /// Whether it is left out.
    is_out: bool,
    outcome: ClusterOutcome,
}

/// Deploys the version to each cluster that can be reached, after `prepare`.
pub(crate) fn deploy<'a>(
    rollout: &'a Rollout,
    built: &Built<'a>,
    job: Job<'a>,
    prepare: impl Fn(&Cluster) -> Result<(), PushError>,
) -> Rolled {
    let part = |cluster: &'a Cluster| Part {
        cluster,
        watch: None,
        away_since: None,
        is_out: cluster.unreachable.is_some(),
        outcome: ClusterOutcome::of(cluster),
    };
    let mut together = Together {
        rollout,
        built: *built,
        job,
        parts: rollout.clusters.iter().map(part).collect(),
    };
    let done = together
        .begin(prepare)
        .and_then(|()| together.fetch())
        .and_then(|()| together.swap());
    let mut error = done.err();
    if error.is_some() {
        together.undo();
    } else if together.parts.iter().any(|part| part.is_out) {
        error = Some(PushError::Unfit("not all clusters have got the version".to_owned()));
    }
    Rolled {
        started_unix_ms: together.built.started_unix_ms,
        clusters: together.parts.into_iter().map(|part| part.outcome).collect(),
        error,
    }
}

impl<'a> Together<'a> {
    /// Begins the push in each cluster, or finds the one that an earlier try has begun.
    fn begin(&mut self, prepare: impl Fn(&Cluster) -> Result<(), PushError>) -> Result<(), PushError> {
        for at in 0..self.parts.len() {
            self.stop_if_cancelled()?;
            let (cluster, built) = (self.parts[at].cluster, self.built);
            if self.parts[at].is_out {
                continue;
            }
            let begun = ask_again(self.rollout.retry_time, self.job, || {
                prepare(cluster)?;
                self.check_gates(cluster)?;
                begin(&cluster.client, &built, Duration::ZERO, self.job)
            });
            match begun {
                Ok(deployed) => {
                    // The versions of all clusters read the same events.
                    let started = deployed.push.started_unix_ms;
                    self.built.started_unix_ms = built.started_unix_ms.or(built.is_hybrid.then_some(started));
                    let part = &mut self.parts[at];
                    part.outcome.upload = deployed.upload;
                    part.watch = Some(Watch::new(&cluster.client, &built, deployed.push));
                }
                Err(error) => self.fail(at, error)?,
            }
        }
        Ok(())
    }

    /// Checks that no gate of the store or the push waits for an operator, in whose place this program would confirm.
    fn check_gates(&self, cluster: &Cluster) -> Result<(), PushError> {
        let store = cluster.client.store(self.built.store)?;
        let gates = store
            .and_then(|store| store.options.gates.flatten())
            .unwrap_or_default();
        match self.built.checks.is_empty() && (gates.need_confirmation() || self.rollout.awaits_operator) {
            true => Err(PushError::Unfit(
                "the gate confirm waits for an operator, and a push to several clusters confirms by itself: push to each by itself, or name \
                 what it has to check, with --gate-samples or --gate-command"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Waits until each cluster has fetched the version, and it has passed its gates and checks.
    fn fetch(&mut self) -> Result<(), PushError> {
        let step = self.job.step();
        let mut checked = vec![false; self.parts.len()];
        loop {
            let (mut goes_on, mut is_shown) = (false, false);
            for (at, is_checked) in checked.iter_mut().enumerate() {
                let Some(push) = self.push(at) else { continue };
                if is_end(push.state) && (*is_checked || !push.awaits_confirmation) {
                    if let Err(error) = self.ended(at) {
                        self.fail(at, error)?;
                    }
                    continue;
                }
                goes_on = true;
                if push.awaits_confirmation {
                    *is_checked = true;
                    if let Err(error) = self.check(at) {
                        self.fail(at, error)?;
                    }
                    continue;
                }
                self.look(at)?;
                if let Some(watch) = self.parts[at].watch.as_ref().filter(|_| !is_shown) {
                    watch.show(&step);
                    is_shown = true;
                }
            }
            self.stop_if_cancelled()?;
            match goes_on {
                true => std::thread::sleep(INTERVAL),
                false => return Ok(()),
            }
        }
    }

    /// Makes the version current in one cluster after the other.
    fn swap(&mut self) -> Result<(), PushError> {
        let mut before = None;
        for at in 0..self.parts.len() {
            let Some(push) = self.push(at) else { continue };
            if push.state != PushState::Swapped {
                if let Some(before) = before {
                    self.pause_after(before)?;
                }
                if let Err(error) = self.swap_one(at) {
                    self.fail(at, error)?;
                }
                if self.parts[at].is_out {
                    continue;
                }
            }
            before = self
                .push(at)
                .filter(|push| !push.changed_nothing())
                .map(|_| at)
                .or(before);
            let part = &mut self.parts[at];
            part.outcome.state = State::Swapped;
            part.outcome.push = part.watch.as_ref().map(|watch| watch.push.clone());
            self.job.note(Note::ClusterEnded {
                store: self.built.store,
                outcome: &part.outcome,
            });
        }
        Ok(())
    }

    /// Confirms the version in a cluster, and waits for the end of its canary.
    fn swap_one(&mut self, at: usize) -> Result<(), PushError> {
        self.stop_if_cancelled()?;
        let (cluster, built, job) = (self.parts[at].cluster, self.built, self.job);
        let client = &cluster.client;
        if let Some(push) = self.push(at).filter(|push| push.awaits_confirmation) {
            let version = push.version;
            let push = ask_again(self.rollout.retry_time, job, || confirm(client, &built, version, None))?;
            if let Some(watch) = &mut self.parts[at].watch {
                watch.push = push;
            }
        }
        let step = job.step();
        while self.push(at).is_some_and(|push| !is_end(push.state)) {
            self.stop_if_cancelled()?;
            std::thread::sleep(INTERVAL);
            self.look(at)?;
            if let Some(watch) = &self.parts[at].watch {
                watch.show(&step);
            }
        }
        drop(step);
        self.ended(at)?;
        // The version is served; which nodes are late is only reported.
        let _ = note_late_nodes(client, built.store, job);
        Ok(())
    }

    /// Waits after the swap of a cluster, and then makes sure that all that have swapped still serve the version.
    fn pause_after(&self, before: usize) -> Result<(), PushError> {
        let pause = self.rollout.pause;
        let swapped_unix_ms = self.push(before).and_then(|push| push.ended_unix_ms);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let passed = now.saturating_sub(Duration::from_millis(swapped_unix_ms.unwrap_or(0)));
        let left = pause.saturating_sub(passed);
        if !left.is_zero() {
            self.job.note(Note::Pausing(left));
        }
        let (begun, mut looked) = (Instant::now(), Instant::now());
        while begun.elapsed() < left {
            self.stop_if_cancelled()?;
            std::thread::sleep(left.saturating_sub(begun.elapsed()).min(INTERVAL));
            if looked.elapsed() >= PAUSE_LOOK_INTERVAL {
                self.all_serve(before)?;
                looked = Instant::now();
            }
        }
        self.all_serve(before)
    }

    /// Makes sure that all clusters up to this one still serve the version.
    fn all_serve(&self, before: usize) -> Result<(), PushError> {
        for part in &self.parts[..=before] {
            let Some(push) = part.watch.as_ref().map(|watch| &watch.push).filter(|_| !part.is_out) else {
                continue;
            };
            let (client, version) = (&part.cluster.client, push.version);
            match client.store(self.built.store).map_err(PushError::from) {
                Ok(Some(store)) if store.current_version == Some(version) => {}
                // The version that was current before does not belong to this rollout.
                Ok(_) if push.changed_nothing() => {}
                Ok(_) => {
                    return Err(PushError::Failed(format!(
                        "{} does not serve version {version} any more: another one was swapped in",
                        client.address()
                    )));
                }
                // A data center that is down does not stop the others.
                Err(error) if error.is_away() => self.job.note(Note::ClusterLeftOut(&error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes the checks of this program in a cluster.
    fn check(&mut self, at: usize) -> Result<(), PushError> {
        let (cluster, built, job) = (self.parts[at].cluster, self.built, self.job);
        let client = &cluster.client;
        let Some(version) = self
            .push(at)
            .map(|push| push.version)
            .filter(|_| !built.checks.is_empty())
        else {
            return Ok(());
        };
        let refused = built.checks.check(client, built.store, version, job);
        self.stop_if_cancelled()?;
        if refused.is_some() {
            let push = ask_again(self.rollout.retry_time, job, || {
                confirm(client, &built, version, refused.clone())
            })?;
            if let Some(watch) = &mut self.parts[at].watch {
                watch.push = push;
            }
        }
        Ok(())
    }

    /// Looks at the push of a cluster. One that does not answer for too long has failed.
    fn look(&mut self, at: usize) -> Result<(), PushError> {
        let part = &mut self.parts[at];
        let Some(watch) = &mut part.watch else { return Ok(()) };
        match watch.look(self.job) {
            Ok(()) => part.away_since = None,
            Err(error) if error.is_away() => {
                let since = part.away_since.get_or_insert_with(|| {
                    self.job.note(Note::ClusterAway(&error));
                    Instant::now()
                });
                if since.elapsed() >= self.rollout.retry_time {
                    self.fail(at, error)?;
                }
            }
            Err(error) => self.fail(at, error)?,
        }
        Ok(())
    }

    /// Why the push of a cluster, which has ended or is held, cannot go live.
    fn ended(&self, at: usize) -> Result<(), PushError> {
        let Some(push) = self.push(at).filter(|push| !push.awaits_confirmation) else {
            return Ok(());
        };
        let at = format!(" --http {}", self.parts[at].cluster.client.address());
        let error = match ended(self.built.store, push.clone(), &at) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match (self.built.run, push.repeated && self.rollout.run().is_some()) {
            (Some(run), true) => Err(PushError::RunFailed {
                run: run.to_owned(),
                source: Box::new(error),
            }),
            _ => Err(error),
        }
    }

    /// Leaves a cluster out because of an error, or ends the rollout.
    fn fail(&mut self, at: usize, error: PushError) -> Result<(), PushError> {
        let part = &mut self.parts[at];
        let is_cancelled = error.is_cancelled();
        part.is_out = !is_cancelled;
        part.outcome.push = part.watch.as_ref().map(|watch| watch.push.clone());
        part.outcome.state = match &error {
            _ if error.is_away() => State::Unreachable,
            PushError::Held(_) => State::Held,
            _ => State::Failed,
        };
        part.outcome.error = Some(with_causes(&error));
        if self.rollout.partial && !is_cancelled {
            self.job.note(Note::ClusterLeftOut(&error));
            return Ok(());
        }
        Err(error.within(format!("{} stops the rollout", part.cluster.client.address())))
    }

    /// Drops the version in each cluster, or rolls it back where it is current, so that none serves it. A cluster that does not answer
    /// does not delay the others.
    fn undo(&mut self) {
        let begun = Instant::now();
        let mut left: Vec<usize> = (0..self.parts.len()).collect();
        loop {
            left.retain(|&at| !self.undo_one(at));
            // A cluster that has been asked for so long already is not waited for again.
            let waits = left.iter().any(|&at| !self.parts[at].is_out);
            if !waits || begun.elapsed() >= self.rollout.retry_time {
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Drops the version in a cluster, or rolls it back; returns whether the cluster has answered.
    fn undo_one(&mut self, at: usize) -> bool {
        let part = &mut self.parts[at];
        let undone = match self.built.run {
            Some(run) => undo(part.cluster, self.built.store, run, self.rollout.partial),
            None => Ok((State::NotBegun, None, None)),
        };
        let (state, push, error) = undone.unwrap_or_else(|error| {
            let state = match error.is_away() {
                true => State::Unreachable,
                false => State::Failed,
            };
            (state, None, Some(with_causes(&error)))
        });
        let outcome = &mut part.outcome;
        let is_away = state == State::Unreachable;
        // The reason that stopped the rollout stays.
        if !part.is_out || !is_away && state != State::NotBegun {
            outcome.state = state;
            outcome.push = push.or(outcome.push.take());
            outcome.error = outcome.error.take().or(error);
        }
        !is_away
    }

    /// The push in a cluster that takes part.
    fn push(&self, at: usize) -> Option<&PushResource> {
        let part = &self.parts[at];
        part.watch.as_ref().map(|watch| &watch.push).filter(|_| !part.is_out)
    }

    fn stop_if_cancelled(&self) -> Result<(), PushError> {
        match self.job.is_cancelled() {
            true => Err(PushError::Cancelled(
                "interrupted before all clusters had swapped".to_owned(),
            )),
            false => Ok(()),
        }
    }
}

/// The outcome of a version in a cluster: its state, its push, and the reason if it could not be undone.
pub(crate) type Undone = (State, Option<PushResource>, Option<String>);

/// Drops the version of the run in a cluster, or goes back to the one before where it is current, unless it may stay there.
pub(crate) fn undo(cluster: &Cluster, name: &StoreName, run: &str, may_stay: bool) -> Result<Undone, PushError> {
    let client = &cluster.client;
    let Some(push) = push_of_run(client, name, run)? else {
        return Ok((State::NotBegun, None, None));
    };
    let version = push.version;
    let mut reason = None;
    let state = match push.state {
        PushState::Failed => State::Failed,
        PushState::Cancelled => State::Dropped,
        PushState::Held if !push.awaits_confirmation => State::Held,
        // A version that was held has an error: an operator has swapped it in, and it stays.
        PushState::Swapped if may_stay || push.changed_nothing() || push.error.is_some() => State::Swapped,
        PushState::Swapped => {
            let request = RollbackRequest {
                to: None,
                set: (!push.with.is_empty()).then_some(true),
                if_current: VersionNumber::new(version),
            };
            let back: Result<StoreResource, AdminError> = client.post(&format!("/v1/stores/{name}/rollback"), &request);
            match back {
                Ok(_) => State::RolledBack,
                // Another version has become current since, or an earlier request has arrived.
                Err(error) if error.code() == "base_changed" => State::RolledBack,
                Err(error) if error.code() == "no_rollback" => {
                    reason = Some(with_causes(&error));
                    State::Swapped
                }
                Err(error) => return Err(error.into()),
            }
        }
        PushState::Fetching | PushState::Ready | PushState::Held => {
            match client.delete(&format!("{}?version={version}", push_path(name))) {
                Ok(()) => State::Dropped,
                // It has ended meanwhile.
                Err(error) if error.code() == "push_ended" => return undo(cluster, name, run, may_stay),
                Err(error) => return Err(error.into()),
            }
        }
    };
    Ok((state, Some(push), reason))
}
