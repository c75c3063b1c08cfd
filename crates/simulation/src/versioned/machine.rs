//! The environment of replicas: clocks, randomness, files, and other nodes. Outgoing messages wait until the world
//! takes them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use fondaco_model::NodeId;
use fondaco_protocol::replica::{OnReply, ReplicaReply, ReplicaRequest};
use fondaco_replica::{Host, Peers};
use parking_lot::Mutex;

use super::message::Asker;
use crate::kernel::FaultyDisk;

/// The wall-clock time at which the world begins, in milliseconds since 1970.
const BEGINS_UNIX_MS: u64 = 1_700_000_000_000;

/// The time of the world.
#[derive(Debug)]
pub(super) struct WorldClock {
    /// An arbitrary time: only the time since then matters.
    began: Instant,
    now_us: AtomicU64,
}

impl WorldClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            now_us: AtomicU64::new(0),
        })
    }

    pub(super) fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Relaxed);
    }

    /// The simulated time of this instant, in microseconds.
    pub(super) fn us_of(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_micros() as u64
    }
}

/// The time of a clock with this offset, in milliseconds since 1970.
pub(super) fn unix_ms(now_us: u64, offset_ms: i64) -> u64 {
    (BEGINS_UNIX_MS + now_us / 1_000).saturating_add_signed(offset_ms)
}

/// The machine of a node.
pub(super) struct Machine {
    pub(super) clock: Arc<WorldClock>,
    pub(super) disk: FaultyDisk,
    /// The error of its clock.
    pub(super) offset_ms: AtomicI64,
    pub(super) rng: Mutex<Rng>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

impl Host for Machine {
    fn now(&self) -> Instant {
        self.clock.began + Duration::from_micros(self.clock.now_us.load(Relaxed))
    }

    fn unix_ms(&self) -> u64 {
        unix_ms(self.clock.now_us.load(Relaxed), self.offset_ms.load(Relaxed))
    }

    fn random(&self) -> u64 {
        self.rng.lock().u64(..)
    }

    fn incarnation_path(&self) -> PathBuf {
        "versioned/incarnation.json".into()
    }

    fn read_incarnation(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.disk.incarnation())
    }

    fn replace_incarnation(&self, bytes: &[u8]) -> io::Result<()> {
        self.disk.set_incarnation(bytes.to_vec());
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(if self.disk.is_full() { 0 } else { u64::MAX })
    }
}

/// A request of a chore to another node.
pub(super) struct Ask {
    pub(super) node: NodeId,
    pub(super) request: ReplicaRequest,
    pub(super) answer: OnReply,
}

/// The outgoing requests of the replica, in one life of a process.
#[derive(Default)]
pub(super) struct Outbox {
    asks: Mutex<Vec<Ask>>,
    replies: Mutex<Vec<(Asker, ReplicaReply)>>,
}

impl Outbox {
    pub(super) fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut self.asks.lock())
    }

    pub(super) fn take_replies(&self) -> Vec<(Asker, ReplicaReply)> {
        std::mem::take(&mut self.replies.lock())
    }

    pub(super) fn reply(&self, asker: Asker, reply: ReplicaReply) {
        self.replies.lock().push((asker, reply));
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outbox")
    }
}

impl Peers for Outbox {
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply) {
        self.asks.lock().push(Ask { node, request, answer });
    }
}
