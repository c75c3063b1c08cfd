//! The incarnation numbers under which this node's replicas create dots, so that no dot is ever given twice.
//!
//! A dot is the node, an incarnation of its data, and a counter. The counter continues as long as no write can have
//! been lost. Otherwise, because the process did not shut down cleanly, the directory is new, or an engine loses
//! everything with its process, a new incarnation counts from the beginning. Its number is random: if the file with the
//! earlier numbers was lost, the new one must not equal one of them, whatever the clock shows. A new incarnation also
//! begins when a damaged record is replaced by the records of other replicas, which may lack its last dots.
//!
//! The invariant: an incarnation is on the disk before its first dot is given, and marked as ended only when all writes
//! under it are on the disk too.
//!
//! The same file records the boot of the machine that the process ran in, and the count of the directory, which reveal
//! what a loss of power or an older copy of the directory has taken, and all [lost writes](super::lost_writes).

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_model::versioned::{DotSource, Durability, EngineKind, ReplicaId};
use fondaco_model::{LastProcess, NodeId};
use serde::{Deserialize, Serialize};

use crate::error::ReplicasError;
use crate::host::Host;
use crate::membership::lost_writes::{LostWrites, Scope};

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The incarnation of data that outlives the process.
    durable: u32,
    /// The incarnation of data that does not.
    volatile: u32,
    /// The last counter given under `durable`, if the process shut down cleanly; 0 while it runs.
    counted: u64,
    /// Whether the process shut down cleanly.
    ended: bool,
    /// Whether acknowledged writes were lost here and are not restored yet.
    #[serde(default)]
    behind: bool,
    /// The identities of the engines that have their own directories, by kind.
    #[serde(default)]
    engines: BTreeMap<EngineKind, u64>,
    /// The boot id of the machine that the process runs in.
    #[serde(default)]
    boot_id: Option<String>,
    /// The count of the directory, if it is counted.
    #[serde(default)]
    count: Option<u64>,
    /// A release that does not know this field refuses a file that has it: it would answer reads without the lost writes.
    #[serde(default, skip_serializing_if = "LostWrites::is_empty")]
    lost_writes: LostWrites,
    /// The losses of power that a former release has noted, by kind of engine.
    #[serde(default, skip_serializing)]
    unsynced: BTreeMap<EngineKind, String>,
}

/// The parameters of opening.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// The identities of the engines that are in use from now on, by kind.
    pub(crate) engines: BTreeMap<EngineKind, u64>,
    /// The boot id of the machine.
    pub(crate) boot_id: Option<String>,
    /// The kinds of engines whose unsynced writes a loss of power takes.
    pub(crate) local_engines: Vec<EngineKind>,
}

/// Whether the data of a store outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// It is on a disk.
    Durable,
    /// It is only in memory.
    Volatile,
}

/// The source of incarnations.
#[derive(Debug)]
pub(crate) struct Incarnation {
    host: Arc<dyn Host>,
    state: Mutex<State>,
    /// How often a new incarnation has begun since the start.
    renewed: AtomicU64,
}

#[derive(Debug, Clone)]
struct State {
    /// The file, as it is while the process runs.
    stored: Stored,
    /// The last counter that an earlier process gave under `durable`.
    counted: u64,
    /// How often a loss was found while the process runs.
    falls: u64,
}

impl State {
    /// Begins a new incarnation.
    fn renew(&mut self, host: &dyn Host) {
        self.stored.durable = other_than(self.stored.durable, host);
        self.stored.volatile = other_than(self.stored.volatile, host);
        self.counted = 0;
    }
}

impl Stored {
    /// The file of a new directory, which lacks all that an earlier one had.
    fn of_new_directory() -> Self {
        Self {
            behind: true,
            ..Self::default()
        }
    }

    /// Notes lost writes of an engine: all signs of losses end here.
    fn note_lost(&mut self, engine: EngineKind, scope: Scope, lost: &str) {
        self.behind |= scope == Scope::All;
        self.lost_writes.note(engine, scope, lost);
    }

    /// Notes the losses that the file reveals at a start: of engines with other directories or databases, and of power.
    fn note_lost_since(&mut self, opening: &Opening) {
        for (&engine, identity) in &opening.engines {
            if self.engines.get(&engine).is_some_and(|known| known != identity) {
                let lost = format!(
                    "the directory or database of engine {:?} was replaced: the data of the former one is lost here",
                    engine.as_str()
                );
                self.note_lost(engine, Scope::All, &lost);
            }
        }
        let last = LastProcess {
            has_ended: self.ended,
            boot_id: self.boot_id.as_deref(),
        };
        if let (true, Some(now), Some(then)) = (
            last.may_lack_unsynced(opening.boot_id.as_deref()),
            &opening.boot_id,
            &self.boot_id,
        ) {
            let lost = format!(
                "the machine stopped while the node ran (its boot was {then} and is {now}): writes that were acknowledged \
                 with durability \"log\" and were not on the disk yet may be lost"
            );
            for &engine in &opening.local_engines {
                self.note_lost(engine, Scope::Unsynced, &lost);
            }
        }
    }
}

impl Incarnation {
    /// Continues the incarnation of the host's directory, or begins a new one, also if an engine has lost writes.
    ///
    /// # Errors
    /// A file that cannot be read, parsed or written.
    pub(crate) fn open(host: &Arc<dyn Host>, opening: Opening) -> Result<Self, ReplicasError> {
        let mut stored = read(&**host)?.unwrap_or_else(Stored::of_new_directory);
        stored.note_lost_since(&opening);
        let mut counted = stored.counted;
        if !stored.ended || stored.lost_writes.have_synced() {
            (stored.durable, counted) = (other_than(stored.durable, &**host), 0);
        }
        let stored = Stored {
            volatile: other_than(stored.volatile, &**host),
            counted: 0,
            ended: false,
            engines: opening.engines,
            boot_id: opening.boot_id,
            ..stored
        };
        write(&**host, &stored)?;
        Ok(Self {
            host: Arc::clone(host),
            state: Mutex::new(State {
                stored,
                counted,
                falls: 0,
            }),
            renewed: AtomicU64::new(0),
        })
    }

    /// Begins a new incarnation. Shards must call [`dots`](Self::dots) again before they give the next dot.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn renew(&self) -> Result<(), ReplicasError> {
        self.change(|state| state.renew(&*self.host))?;
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Whether acknowledged writes may be lost here, because the directory is new or an engine has lost writes, and are
    /// not restored yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.state().stored.behind
    }

    /// Whether there are losses that were neither restored nor given up.
    pub(crate) fn has_lost(&self) -> bool {
        !self.state().stored.lost_writes.is_empty()
    }

    /// Describes these losses of an engine, all or those with this scope.
    pub(crate) fn lost(&self, engine: EngineKind, scope: Option<Scope>) -> Option<String> {
        self.state().stored.lost_writes.described(engine, scope)
    }

    /// Whether they concern stores in this engine, with this durability.
    pub(crate) fn is_lost(&self, engine: EngineKind, durability: Durability) -> bool {
        self.state().stored.lost_writes.concern(engine, durability)
    }

    /// Gives up the lost writes of an engine.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn forget_lost(&self, engine: EngineKind) -> Result<(), ReplicasError> {
        self.change(|state| state.stored.lost_writes.forget(engine))
    }

    /// The count of the directory; `None` before it is counted.
    pub(crate) fn count(&self) -> Option<u64> {
        self.state().stored.count
    }

    /// Sets the count of the directory.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn set_count(&self, count: u64) -> Result<(), ReplicasError> {
        self.change(|state| state.stored.count = Some(count))
    }

    /// Acknowledged writes may be lost here.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn fall_behind(&self) -> Result<(), ReplicasError> {
        self.state().falls += 1;
        match self.is_behind() {
            true => Ok(()),
            false => self.change(|state| state.stored.behind = true),
        }
    }

    /// Acknowledged writes of engines are lost here, with the dots that were given: notes the loss, and begins a new
    /// incarnation.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn lose(&self, engines: impl Iterator<Item = EngineKind>, lost: &str) -> Result<(), ReplicasError> {
        self.state().falls += 1;
        self.change(|state| {
            engines.for_each(|engine| state.stored.note_lost(engine, Scope::All, lost));
            state.renew(&*self.host);
        })?;
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// How often [`fall_behind`](Self::fall_behind) or [`lose`](Self::lose) was called.
    pub(crate) fn falls(&self) -> u64 {
        self.state().falls
    }

    /// All lost data is restored, as seen when there had been this many [`falls`](Self::falls). Has no effect if there
    /// were more since.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn caught_up(&self, falls: u64) -> Result<(), ReplicasError> {
        if self.falls() > falls {
            return Ok(());
        }
        self.change(|state| {
            // Another loss may have been found just now.
            if state.falls <= falls {
                state.stored.behind = false;
                state.stored.lost_writes = LostWrites::default();
            }
        })
    }

    /// How often a new incarnation has begun while the process runs.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Relaxed)
    }

    /// Changes the file, and then the state in memory.
    fn change(&self, change: impl FnOnce(&mut State)) -> Result<(), ReplicasError> {
        let mut state = self.state();
        let mut changed = state.clone();
        change(&mut changed);
        write(&*self.host, &changed.stored)?;
        *state = changed;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The dots that a node may give from now on. Each key must get all of its dots from one source.
    pub(crate) fn dots(&self, node: NodeId, lasting: Lasting) -> DotSource {
        let state = self.state();
        let (incarnation, last) = match lasting {
            Lasting::Durable => (state.stored.durable, state.counted),
            Lasting::Volatile => (state.stored.volatile, 0),
        };
        DotSource::new(ReplicaId { node, incarnation }, last)
    }

    /// Call it with the last counter of all sources when no more dots are given and all writes are on the disk: the
    /// next start continues from there.
    ///
    /// # Errors
    /// A file that cannot be written: the next start then begins a new incarnation.
    pub(crate) fn end(&self, last: u64) -> Result<(), ReplicasError> {
        let state = self.state();
        let ended = Stored {
            counted: last.max(state.counted),
            ended: true,
            ..state.stored.clone()
        };
        write(&*self.host, &ended)
    }
}

/// Notes writes that an engine has lost, before the incarnation is opened.
///
/// # Errors
/// A file that cannot be read, parsed or written.
pub(crate) fn note_lost(host: &dyn Host, engine: EngineKind, lost: &str) -> Result<(), ReplicasError> {
    let mut stored = read(host)?.unwrap_or_else(Stored::of_new_directory);
    stored.note_lost(engine, Scope::All, lost);
    write(host, &stored)
}

/// A random number, from 1. A repetition for this node has the probability of drawing the same of four thousand million
/// numbers twice; even then its counters, which run at least as fast as the clock, are mostly past the old ones.
fn other_than(last: u32, host: &dyn Host) -> u32 {
    let mut drawn = std::iter::repeat_with(|| host.random() as u32);
    drawn.find(|&drawn| drawn != 0 && drawn != last).unwrap_or(1)
}

fn read(host: &dyn Host) -> Result<Option<Stored>, ReplicasError> {
    let path = host.incarnation_path();
    let text = host.read_incarnation().map_err(ReplicasError::io("read", &path))?;
    let stored: Result<Option<Stored>, _> = text.map(|text| serde_json::from_slice(&text)).transpose();
    let mut stored = stored.map_err(|error| ReplicasError::InvalidIncarnation {
        path,
        reason: error.to_string(),
    })?;
    if let Some(stored) = &mut stored {
        for (engine, lost) in std::mem::take(&mut stored.unsynced) {
            stored.note_lost(engine, Scope::Unsynced, &lost);
        }
    }
    Ok(stored)
}

fn write(host: &dyn Host, stored: &Stored) -> Result<(), ReplicasError> {
    let text = serde_json::to_vec(stored).map_err(io::Error::other);
    text.and_then(|text| host.replace_incarnation(&text))
        .map_err(ReplicasError::io("write", &host.incarnation_path()))
}

#[cfg(test)]
mod tests;
