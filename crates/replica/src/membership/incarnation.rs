//! Under which numbers this node's replicas give dots to writes, so that no dot is ever given twice.
//!
//! A dot is the node, an incarnation of its data, and a counter. The counter goes on as long as nothing that
//! was written can have been lost. Where something can, since the process did not come to an orderly end,
//! since the directory is new, or since an engine forgets everything with its process, a new incarnation
//! counts from the beginning. Its number is drawn by lot: one that began where the file was lost, with all that
//! is known of earlier ones, must not be one of them, whatever the clock shows. Another one begins, too, when a record
//! that was found damaged is replaced by what others have of it: that may be without its last dots.
//!
//! The invariant: an incarnation is on the disk before its first dot is given, and said to have ended well
//! only when all that was written under it is on the disk too.
//!
//! The same file says which boot of the machine the process ran in, and how far the directory is by its count: what a loss
//! of power or an older copy of the directory has taken is known by these.

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

/// How long the words become at most that say what an engine may have lost: the first losses tell most.
const LOST_BYTES_MAX: usize = 4096;

/// What is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The incarnation of what outlives the process.
    durable: u32,
    /// The incarnation of what does not.
    volatile: u32,
    /// The last counter that was given under `durable`, if it ended well; 0 as long as it lasts.
    counted: u64,
    /// Whether it ended well.
    ended: bool,
    /// Whether something that was acknowledged is lost here, and was not had from others yet.
    #[serde(default)]
    behind: bool,
    /// The identities of the engines that have directories of their own, by their kinds.
    #[serde(default)]
    engines: BTreeMap<String, u64>,
    /// The boot of the machine that the process runs in.
    #[serde(default)]
    boot_id: Option<String>,
    /// How far the directory is, once that was counted.
    #[serde(default)]
    count: Option<u64>,
    /// What a loss of power may have taken of what was acknowledged before it was on the disk, by the kinds of engines.
    #[serde(default)]
    unsynced: BTreeMap<String, String>,
}

/// What the directory is opened with.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Whether an engine has lost what was written.
    pub(crate) has_lost: bool,
    /// The identities of the engines that are in use from now on, by their kinds.
    pub(crate) engines: BTreeMap<String, u64>,
    /// The boot of the machine.
    pub(crate) boot_id: Option<String>,
    /// The kinds of engines that a loss of power takes unsynced writes from.
    pub(crate) local_engines: Vec<String>,
}

/// Whether what a store holds outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// It is on a disk.
    Durable,
    /// It is in memory alone.
    Volatile,
}

/// Where dots begin.
#[derive(Debug)]
pub(crate) struct Incarnation {
    host: Arc<dyn Host>,
    engines: BTreeMap<String, u64>,
    boot_id: Option<String>,
    numbers: Mutex<Numbers>,
    /// How often another one was begun.
    renewed: AtomicU64,
}

#[derive(Debug, Clone)]
struct Numbers {
    durable: u32,
    volatile: u32,
    /// The last counter given under `durable` in an earlier life.
    counted: u64,
    behind: bool,
    /// How often something was found to be lost while the process runs.
    falls: u64,
    count: Option<u64>,
    unsynced: BTreeMap<String, String>,
}

impl Numbers {
    /// Another incarnation.
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
    /// Goes on with the incarnation of the host's directory, or begins another one: also if an engine has lost what was written.
    ///
    /// # Errors
    /// A file that cannot be read, understood or written.
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

    /// Begins another one. Shards are to ask for [`dots`](Self::dots) anew before they give the next one.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn renew(&self) -> Result<(), ReplicasError> {
        self.change(|numbers| *numbers = numbers.renewed(&*self.host))?;
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Whether something that was acknowledged may be lost here, since the directory is new, or an engine has lost what was
    /// written, and was not had from others yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.numbers().behind
    }

    /// What a loss of power may have taken of an engine's writes that were acknowledged before they were on the disk, in
    /// words; `None` if nothing, or it was had again or given up.
    pub(crate) fn unsynced_loss(&self, engine: &str) -> Option<String> {
        self.numbers().unsynced.get(engine).cloned()
    }

    /// Whether there is such a loss, of any engine.
    pub(crate) fn has_unsynced_loss(&self) -> bool {
        !self.numbers().unsynced.is_empty()
    }

    /// What a loss of power took of an engine's writes is given up.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn forget_unsynced_loss(&self, engine: &str) -> Result<(), ReplicasError> {
        match self.unsynced_loss(engine) {
            Some(_) => self.change(|numbers| drop(numbers.unsynced.remove(engine))),
            None => Ok(()),
        }
    }

    /// How far the directory is; `None` before that was counted.
    pub(crate) fn count(&self) -> Option<u64> {
        self.numbers().count
    }

    /// The directory is so far from now on.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn set_count(&self, count: u64) -> Result<(), ReplicasError> {
        self.change(|numbers| numbers.count = Some(count))
    }

    /// Something that was acknowledged may be lost here.
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

    /// Something that was acknowledged is lost here, with dots that were given: another incarnation begins.
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

    /// All that was lost was had from others, as it was seen when there had been so many [`falls`](Self::falls). It was not
    /// if there were more since.
    ///
    /// # Errors
    /// A file that cannot be written: then nothing has changed.
    pub(crate) fn caught_up(&self, falls: u64) -> Result<(), ReplicasError> {
        if self.falls() > falls {
            return Ok(());
        }
        self.change(|numbers| {
            // Another one may have come just now.
            if numbers.falls <= falls {
                numbers.behind = false;
                numbers.unsynced.clear();
            }
        })
    }

    /// How often another one was begun while the process runs.
    pub(crate) fn renewed(&self) -> u64 {
        self.renewed.load(Relaxed)
    }

    /// Changes what is on the disk, and then what is known of it.
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

    /// The dots that a node may give from now on. Each key is to get all of its dots from one source.
    pub(crate) fn dots(&self, node: NodeId, lasting: Lasting) -> DotSource {
        let numbers = self.numbers();
        let (incarnation, last) = match lasting {
            Lasting::Durable => (numbers.durable, numbers.counted),
            Lasting::Volatile => (numbers.volatile, 0),
        };
        DotSource::new(ReplicaId { node, incarnation }, last)
    }

    /// To be called with the last counter of all sources when no more dots are given and all that was
    /// written is on the disk: the next start goes on from there.
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

/// What losses of power may have taken of each engine's writes: those that are known, and one since the last process.
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

/// The identities of the engines that were in use in the directory when it was opened last, by their kinds.
///
/// # Errors
/// A file that cannot be read or understood.
pub(crate) fn known_engines(host: &dyn Host) -> Result<BTreeMap<String, u64>, ReplicasError> {
    Ok(read(host)?.map(|stored| stored.engines).unwrap_or_default())
}

/// A number drawn by lot, from 1. That it was drawn for this node before is as likely as to draw the same of four
/// thousand million twice; and then its counters, which go no slower than the clock, have mostly passed the old ones.
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
