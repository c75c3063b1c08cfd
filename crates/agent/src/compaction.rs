//! Compaction of hybrid stores that ask for it: `fondaco store compact`, run by a node in a process of its own, whose
//! memory and faults are not the node's.
//!
//! The live owner with the lowest number does it for the whole cluster, and others only if it does not. Should two
//! nodes do it at a time, the second push is refused.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use fondaco_cluster::{ChangeSignal, Ending, Mirror, Worker};
use fondaco_model::StoreName;
use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_os::command;
use rustix::process::Signal;

use crate::agent::AgentWork;
use crate::error::AgentError;

/// How often stores are checked.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a store is left alone after its command failed: twice as long each time, up to the longest.
const AFTER_FAILURE: Duration = Duration::from_secs(60);
const AFTER_FAILURE_MAX: Duration = Duration::from_secs(3600);
/// By how much a span of events that is due has to be longer before the next owner compacts it, in milliseconds.
const TURN_MS: u64 = 60 * 60 * 1000;
/// How often a version has to fit on the disk: fetched, built and uploaded.
const COPIES: u64 = 3;
/// The niceness of the commands: requests of clients come first.
const NICE: i32 = 10;

/// The parts that compaction is made of.
pub struct CompactionParts {
    /// The program, which has the command.
    pub program: PathBuf,
    /// How it reaches this node: environment variables.
    pub environment: Vec<(&'static str, OsString)>,
    /// The directory in which it works.
    pub work: PathBuf,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
    /// The agent of this node.
    pub agent: Arc<AgentWork>,
    /// The cluster.
    pub mirror: Mirror,
}

/// The thread that looks for stores to compact. Dropping it stops it, and the command that it runs.
pub struct CompactionWork {
    _worker: Worker,
}

impl CompactionWork {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(parts: CompactionParts) -> Result<Self, AgentError> {
        let signal = Arc::new(ChangeSignal::default());
        let theirs = Arc::clone(&signal);
        let worker = Worker::start("compaction", signal, move |ending| watch(&parts, &theirs, ending))?;
        Ok(Self { _worker: worker })
    }
}

fn watch(parts: &CompactionParts, signal: &ChangeSignal, ending: &Ending) {
    // Of a process that was killed.
    parts.clean_up();
    // Commands inherit it. If the system refuses, they have the normal priority.
    let _ = rustix::process::nice(NICE);
    // When a store may be tried again, and how long it was left alone.
    let mut failed: BTreeMap<StoreName, (Instant, Duration)> = BTreeMap::new();
    // The time up to which events were searched, whether or not there were any.
    let mut done: BTreeMap<StoreName, u64> = BTreeMap::new();
    loop {
        let seen = signal.count();
        if ending.has_come() {
            return;
        }
        signal.wait(seen, PERIOD);
        let view = parts.mirror.view();
        failed.retain(|name, _| view.stores.contains_key(name));
        let stores = view.stores.values().map(|store| &store.record);
        let may_run = |store: &&StoreRecord| {
            let failed = failed.get(&store.definition.name);
            failed.is_none_or(|(again_at, _)| *again_at <= Instant::now())
        };
        let due = stores.filter(may_run).filter_map(|store| {
            let name = &store.definition.name;
            let due = parts.due(&view, store, done.get(name).copied().unwrap_or(0));
            due.map(|(due_ms, until_ms)| (due_ms, store, name, until_ms))
        });
        // The one that has waited longest: one that takes long and is due often must not keep others from it.
        let Some((_, store, name, until_ms)) = due.min_by_key(|(due_ms, ..)| *due_ms) else {
            continue;
        };
        tracing::info!(store = %name, "putting events into a new version");
        let ran = parts.check_space(store).and_then(|()| parts.run(name, ending));
        parts.clean_up();
        match ran {
            Ok(()) => {
                tracing::info!(store = %name, "events are in a new version, if there were any");
                done.insert(name.clone(), until_ms);
                failed.remove(name);
            }
            Err(reason) => {
                let pause = pause_after(failed.get(name).map(|(_, before)| *before));
                let again = format!("trying again in {} min", pause.as_secs() / 60);
                tracing::warn!(store = %name, reason, again, "cannot put events into a new version");
                failed.insert(name.clone(), (Instant::now() + pause, pause));
            }
        }
    }
}

/// How long a store is left alone after a failure, given how long it was before that.
fn pause_after(before: Option<Duration>) -> Duration {
    before.map_or(AFTER_FAILURE, |before| AFTER_FAILURE_MAX.min(before * 2))
}

impl CompactionParts {
    /// From when on this node has to put events of a store into a version, and up to which time it can, in milliseconds
    /// since 1970. Events up to `done_ms` are in a version already. `None` if it does not have to.
    fn due(&self, view: &ClusterView, store: &StoreRecord, done_ms: u64) -> Option<(u64, u64)> {
        let stream = store.definition.stream.as_ref()?;
        if stream.compact_ms == 0 || stream.paused {
            return None;
        }
        if view.remembered || store.pushing().is_some() {
            return None;
        }
        let owned = view.routing.as_ref()?.record.owned(view.replicas(store));
        let live = view.nodes.keys().filter(|node| view.is_live(**node));
        let mut owners = live.filter(|node| owned.get(node).is_some_and(|owned| !owned.is_empty()));
        // Should the first owner be unable to, the next one does it a while later.
        let rank = owners.position(|owner| self.agent.node() == Some(*owner))? as u64;
        let waits_ms = stream.compact_ms.max(TURN_MS).saturating_mul(rank);
        let current = store.versions.current()?;
        let events = store.details.get(&current)?.events?;
        let since_ms = events.as_of_unix_ms.unwrap_or(events.from_unix_ms).max(done_ms);
        let of_stream = self.agent.streams().status(&store.definition.name);
        let of_current = of_stream.iter().find(|status| status.version == current)?;
        let settled_ms = of_current.feed.settled_ms;
        let due_ms = since_ms.saturating_add(stream.compact_ms).saturating_add(waits_ms);
        (settled_ms >= due_ms).then_some((due_ms, settled_ms))
    }

    /// Deletes the files that a command has left: after a failed push it keeps the build, for people.
    fn clean_up(&self) {
        match fs::remove_dir_all(&self.work) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(dir = ?self.work, %error, "cannot delete the files of a compaction");
            }
            _ => {}
        }
    }

    /// Checks that the disk has space for the command.
    fn check_space(&self, store: &StoreRecord) -> Result<(), String> {
        let current = store.versions.current().and_then(|current| store.details.get(&current));
        let needed = current
            .map_or(0, |detail| COPIES.saturating_mul(detail.bytes))
            .saturating_add(self.reserve_bytes);
        match self.agent.data_dir().available_bytes() {
            Some(available) if available < needed => Err(format!(
                "the disk has {available} bytes free, and {needed} are needed, for {COPIES} copies of the version and \
                 the reserve: free some, or run fondaco store compact on another machine"
            )),
            _ => Ok(()),
        }
    }

    /// Whether the disk has only its reserve left. How much the command needs depends on the events, too.
    fn is_disk_full(&self) -> bool {
        let available = self.agent.data_dir().available_bytes();
        available.is_some_and(|available| available < self.reserve_bytes)
    }

    /// Runs the command to its end, or until the disk is full.
    fn run(&self, store: &StoreName, ending: &Ending) -> Result<(), String> {
        fs::create_dir_all(&self.work).map_err(|error| format!("cannot make {:?}: {error}", self.work))?;
        let mut command = Command::new(&self.program);
        command
            .args(["store", "compact", store.as_str(), "--upload", "--quiet", "--work"])
            .arg(&self.work)
            .env_remove("FONDACO_RESP")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        // It must not outlive a node that is killed: the next one begins with an empty directory.
        let end_with_node = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: the closure makes one system call, and touches no memory of others.
        unsafe { command.pre_exec(end_with_node) };
        let stopped = || match ending.has_come() {
            true => Some("this node is stopping"),
            false => self.is_disk_full().then_some(
                "the disk has only its reserve left: free some, or run fondaco store compact on another machine",
            ),
        };
        command::run(&mut command, b"", None, &stopped).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_an_hour() {
        let pauses = std::iter::successors(Some(pause_after(None)), |before| Some(pause_after(Some(*before))));
        let minutes: Vec<_> = pauses.take(8).map(|pause| pause.as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
