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
//! what a loss of power or an older copy of the directory has taken.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fondaco_model::versioned::{DotSource, ReplicaId};
use fondaco_model::{LastProcess, NodeId};
use serde::{Deserialize, Serialize};

use crate::error::ReplicasError;
use crate::host::Host;

/// The maximum length of the description of an engine's losses: the first losses say the most.
const LOST_BYTES_MAX: usize = 4096;

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    engines: BTreeMap<String, u64>,
    /// The boot id of the machine that the process runs in.
    #[serde(default)]
    boot_id: Option<String>,
    /// The count of the directory, if it is counted.
    #[serde(default)]
    count: Option<u64>,
    /// The writes, acknowledged before they were on the disk, that a loss of power may have taken, by kind of engine.
    #[serde(default)]
    unsynced: BTreeMap<String, String>,
}

/// The parameters of opening.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Whether an engine has lost writes.
    pub(crate) has_lost: bool,
    /// The identities of the engines that are in use from now on, by kind.
    pub(crate) engines: BTreeMap<String, u64>,
    /// The boot id of the machine.
    pub(crate) boot_id: Option<String>,
    /// The kinds of engines whose unsynced writes a loss of power takes.
    pub(crate) local_engines: Vec<String>,
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
    engines: BTreeMap<String, u64>,
    boot_id: Option<String>,
    numbers: Mutex<Numbers>,
    /// How often a new incarnation has begun.
    renewed: AtomicU64,
}

#[derive(Debug, Clone)]
struct Numbers {
    durable: u32,
    volatile: u32,
    /// The last counter that an earlier process gave under `durable`.
    counted: u64,
    behind: bool,
    /// How often a loss was found while the process runs.
    falls: u64,
    count: Option<u64>,
    unsynced: BTreeMap<String, String>,
}

impl Numbers {
    /// A new incarnation.
    fn renewed(&self, host: &dyn Host) -> Self {
        Self {
            durable: other_than(self.durable, host),
            volatile: other_than(self.volatile, host),
            counted: 0,
            ..self.clone()
        }
    }
}

impl Incarnation {
    /// Continues the incarnation of the host's directory, or begins a new one, also if an engine has lost writes.
    ///
    /// # Errors
    /// A file that cannot be read, parsed or written.
    pub(crate) fn open(host: &Arc<dyn Host>, opening: Opening) -> Result<Self, ReplicasError> {
        let stored = read(&**host)?;
        let other_than = |last| other_than(last, &**host);
        let (durable, counted) = match &stored {
            Some(stored) if stored.ended && !opening.has_lost => (stored.durable, stored.counted),
            Some(stored) => (other_than(stored.durable), 0),
            None => (other_than(0), 0),
        };
        let numbers = Numbers {
            durable,
            volatile: other_than(stored.as_ref().map_or(0, |stored| stored.volatile)),
            counted,
            behind: opening.has_lost || stored.as_ref().is_none_or(|stored| stored.behind),
            falls: 0,
            count: stored.as_ref().and_then(|stored| stored.count),
            unsynced: stored.map_or_else(BTreeMap::new, |stored| unsynced(stored, &opening)),
        };
        let incarnation = Self {
            host: Arc::clone(host),
            engines: opening.engines,
            boot_id: opening.boot_id,
            numbers: Mutex::new(numbers),
            renewed: AtomicU64::new(0),
        };
        incarnation.write(&incarnation.numbers(), 0, false)?;
        Ok(incarnation)
    }

    /// Begins a new incarnation. Shards must call [`dots`](Self::dots) again before they give the next dot.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn renew(&self) -> Result<(), ReplicasError> {
        self.change(|numbers| *numbers = numbers.renewed(&*self.host))?;
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Whether acknowledged writes may be lost here, because the directory is new or an engine has lost writes, and are
    /// not restored yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.numbers().behind
    }

    /// Describes what a loss of power may have taken of an engine's writes that were acknowledged before they were on
    /// the disk; `None` if there is no such loss, or it was restored or given up.
    pub(crate) fn unsynced_loss(&self, engine: &str) -> Option<String> {
        self.numbers().unsynced.get(engine).cloned()
    }

    /// Whether any engine has such a loss.
    pub(crate) fn has_unsynced_loss(&self) -> bool {
        !self.numbers().unsynced.is_empty()
    }

    /// Gives up the writes that a loss of power took from an engine.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn forget_unsynced_loss(&self, engine: &str) -> Result<(), ReplicasError> {
        match self.unsynced_loss(engine) {
            Some(_) => self.change(|numbers| drop(numbers.unsynced.remove(engine))),
            None => Ok(()),
        }
    }

    /// The count of the directory; `None` before it is counted.
    pub(crate) fn count(&self) -> Option<u64> {
        self.numbers().count
    }

    /// Sets the count of the directory.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn set_count(&self, count: u64) -> Result<(), ReplicasError> {
        self.change(|numbers| numbers.count = Some(count))
    }

    /// Acknowledged writes may be lost here.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn fall_behind(&self) -> Result<(), ReplicasError> {
        self.numbers().falls += 1;
        match self.is_behind() {
            true => Ok(()),
            false => self.change(|numbers| numbers.behind = true),
        }
    }

    /// Acknowledged writes are lost here, with the dots that were given: a new incarnation begins.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn fall_behind_anew(&self) -> Result<(), ReplicasError> {
        self.numbers().falls += 1;
        self.change(|numbers| {
            *numbers = Numbers {
                behind: true,
                ..numbers.renewed(&*self.host)
            };
        })?;
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// How often [`fall_behind`](Self::fall_behind) was called.
    pub(crate) fn falls(&self) -> u64 {
        self.numbers().falls
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
        self.change(|numbers| {
            // Another loss may have been found just now.
            if numbers.falls <= falls {
                numbers.behind = false;
                numbers.unsynced.clear();
            }
        })
    }

    /// How often a new incarnation has begun while the process runs.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Relaxed)
    }

    /// Changes the file, and then the state in memory.
    fn change(&self, change: impl FnOnce(&mut Numbers)) -> Result<(), ReplicasError> {
        let mut numbers = self.numbers();
        let mut changed = numbers.clone();
        change(&mut changed);
        self.write(&changed, 0, false)?;
        *numbers = changed;
        Ok(())
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock()
    }

    /// The dots that a node may give from now on. Each key must get all of its dots from one source.
    pub(crate) fn dots(&self, node: NodeId, lasting: Lasting) -> DotSource {
        let numbers = self.numbers();
        let (incarnation, last) = match lasting {
            Lasting::Durable => (numbers.durable, numbers.counted),
            Lasting::Volatile => (numbers.volatile, 0),
        };
        DotSource::new(ReplicaId { node, incarnation }, last)
    }

    /// Call it with the last counter of all sources when no more dots are given and all writes are on the disk: the
    /// next start continues from there.
    ///
    /// # Errors
    /// A file that cannot be written: the next start then begins a new incarnation.
    pub(crate) fn end(&self, last: u64) -> Result<(), ReplicasError> {
        let numbers = self.numbers();
        self.write(&numbers, last.max(numbers.counted), true)
    }

    fn write(&self, numbers: &Numbers, counted: u64, ended: bool) -> Result<(), ReplicasError> {
        let stored = Stored {
            durable: numbers.durable,
            volatile: numbers.volatile,
            counted,
            ended,
            behind: numbers.behind,
            engines: self.engines.clone(),
            boot_id: self.boot_id.clone(),
            count: numbers.count,
            unsynced: numbers.unsynced.clone(),
        };
        let text = serde_json::to_vec(&stored).map_err(io::Error::other);
        text.and_then(|text| self.host.replace_incarnation(&text))
            .map_err(ReplicasError::io("write", &self.host.incarnation_path()))
    }
}

/// The writes of each engine that losses of power may have taken: known losses, and one since the last process.
fn unsynced(stored: Stored, opening: &Opening) -> BTreeMap<String, String> {
    let last = LastProcess {
        has_ended: stored.ended,
        boot_id: stored.boot_id.as_deref(),
    };
    let mut unsynced = stored.unsynced;
    if let (true, Some(now), Some(then)) = (
        last.may_lack_unsynced(opening.boot_id.as_deref()),
        &opening.boot_id,
        &stored.boot_id,
    ) {
        let lost = format!(
            "the machine stopped while the node ran (its boot was {then} and is {now}): writes that were acknowledged with \
             durability \"log\" and were not on the disk yet may be lost"
        );
        for engine in &opening.local_engines {
            let text = unsynced.entry(engine.clone()).or_default();
            if !text.is_empty() && text.len() < LOST_BYTES_MAX {
                text.push_str("; ");
            }
            if text.len() < LOST_BYTES_MAX {
                text.push_str(&lost);
            }
        }
    }
    unsynced
}

/// The identities of the engines that were in use when the directory was last opened, by kind.
///
/// # Errors
/// A file that cannot be read or parsed.
pub(crate) fn known_engines(host: &dyn Host) -> Result<BTreeMap<String, u64>, ReplicasError> {
    Ok(read(host)?.map(|stored| stored.engines).unwrap_or_default())
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
    let stored = text.map(|text| serde_json::from_slice(&text)).transpose();
    stored.map_err(|error| ReplicasError::InvalidIncarnation {
        path,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
