//! The replica of a node: the real one, driven by the world, on a disk that outlives its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::{Record, VersionedSettings};
use fondaco_model::{NodeId, PartitionCount, PartitionId, PartitionSet, RoutingTable, StoreName};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{OnReply, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::{DrivenReplicas, Engines, Peers, ReplicaCounter, ReplicaOptions, ReplicaView, ReplicatedStore};
use parking_lot::Mutex;

use super::machine::{Machine, Outbox};
use super::message::Asker;
use super::scenario::Flaw;
use crate::kernel::{DiskCopy, FaultyDisk};

/// The number of the store, and its time of creation.
pub(super) const STORE_ID: u16 = 1;
const CREATED_UNIX_MS: u64 = 7;

/// The name of its table.
pub(super) const TABLE: &str = "store-2-1-7";

/// The approximate interval between comparisons of a partition.
const EXCHANGE_PERIOD: Duration = Duration::from_secs(4);

/// The interval between attempts to hand over hints.
const HANDOFF_PERIOD: Duration = Duration::from_millis(500);

/// The interval between searches for expired deletions.
const SWEEP_PERIOD: Duration = Duration::from_secs(3);

/// The timeout of a background request to another node.
const PEER_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of threads with which a node would commit.
const SHARDS: usize = 2;

/// The properties of the store that all replicas know.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) name: StoreName,
    pub(super) settings: VersionedSettings,
    /// The number of nodes that hold each partition.
    pub(super) replicas: usize,
    pub(super) nodes: usize,
    pub(super) flaw: Option<Flaw>,
}

impl Store {
    /// The partition of a key, by this number of partitions.
    pub(super) fn partition_of(&self, key: &[u8], partitions: PartitionCount) -> PartitionId {
        let key = WireKey::new(&self.name, key);
        key.map_or(PartitionId::new(0), |key| partitions.partition_of(key.slot()))
    }
}

/// The replica of a node.
pub(super) struct Replica {
    pub(super) node: NodeId,
    pub(super) machine: Arc<Machine>,
    /// A copy of the disk from an earlier end of the process, with the routing table that the process knew.
    pub(super) copy: Option<(DiskCopy, Arc<RoutingTable>)>,
    /// Whether its disk, or a part of it, was lost, and a part of the data that it holds or will own has not been
    /// recovered from others yet.
    pub(super) has_lost: bool,
    /// The routing table that it uses.
    pub(super) table: Arc<RoutingTable>,
    /// Whether the next process remembers that table.
    pub(super) remembers: bool,
    /// The loss that the next process receives.
    pub(super) went_back: bool,
    /// How often the machine was booted.
    pub(super) boots: u32,
    /// The running process.
    pub(super) life: Option<Life>,
}

/// A process.
pub(super) struct Life {
    pub(super) driven: DrivenReplicas,
    pub(super) outbox: Arc<Outbox>,
    /// The polled chores.
    pub(super) chores: Vec<Chore>,
    /// The pending requests of chores.
    pub(super) asks: BTreeMap<u64, OnReply>,
    /// For each shard, whether its next event is already scheduled.
    pub(super) is_busy: Vec<bool>,
    /// The next time at which chores are polled, in microseconds.
    pub(super) polled_at_us: u64,
    /// The epoch of the table, and the live nodes, that it received last.
    told: Option<(u64, BTreeSet<NodeId>)>,
}

/// A chore of the replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chore {
    pub(super) number: usize,
    pub(super) name: &'static str,
}

/// The polled chores: all except the one that resumes engines after they have detected a loss during use, which never
/// happens with the simulated disk.
fn polled(driven: &DrivenReplicas, flaw: Option<Flaw>) -> Vec<Chore> {
    let chores = driven.chores().into_iter().enumerate();
    let all = chores.map(|(number, name)| Chore { number, name });
    let never = |name| name == "go on" || name == "reconcile" && flaw == Some(Flaw::NeverCompares);
    all.filter(|chore| !never(chore.name)).collect()
}

/// The counts of a process.
#[derive(Debug, Default)]
pub(super) struct Deeds {
    pub(super) exchanges: u64,
    pub(super) forgotten: u64,
    pub(super) commits: u64,
}

impl Replica {
    pub(super) fn new(node: NodeId, machine: Machine, table: &Arc<RoutingTable>) -> Self {
        Self {
            node,
            machine: Arc::new(machine),
            copy: None,
            has_lost: false,
            table: Arc::clone(table),
            remembers: true,
            went_back: false,
            boots: 0,
            life: None,
        }
    }

    pub(super) fn disk(&self) -> &FaultyDisk {
        &self.machine.disk
    }

    /// Starts the process. The first one starts before the store exists.
    pub(super) fn start(&mut self, store: &Store, is_first: bool) -> Result<(), String> {
        let outbox = Arc::new(Outbox::default());
        let options = ReplicaOptions {
            shards: SHARDS,
            reserve_bytes: 1,
            exchange_period: EXCHANGE_PERIOD,
            handoff_period: HANDOFF_PERIOD,
            sweep_period: SWEEP_PERIOD,
            handoff_bytes_per_second: None,
            exchange_bytes_per_second: None,
            scan_bytes_per_second: None,
            peer_timeout: PEER_TIMEOUT,
            peer_timeout_max: PEER_TIMEOUT,
            boot_id: Some(self.boots.to_string()),
            ..ReplicaOptions::default()
        };
        let engines = Engines::new(Arc::new(self.machine.disk.clone()));
        let host = Arc::clone(&self.machine);
        let peers = Arc::clone(&outbox) as Arc<dyn Peers>;
        let driven = DrivenReplicas::open(host, &engines, peers, options).map_err(|error| error.to_string())?;
        if std::mem::take(&mut self.went_back) {
            driven
                .went_back("an older copy was put back")
                .map_err(|error| error.to_string())?;
        }
        let shards = driven.shards();
        self.life = Some(Life {
            chores: polled(&driven, store.flaw),
            driven,
            outbox,
            asks: BTreeMap::new(),
            is_busy: vec![false; shards],
            polled_at_us: u64::MAX,
            told: None,
        });
        if is_first {
            return self.tell(store, &BTreeSet::from([self.node]), Said::WithoutStore);
        }
        match self.remembers {
            true => self.tell(store, &BTreeSet::new(), Said::Remembered),
            false => Ok(()),
        }
    }

    /// Kills the process. Returns the clients that wait for its replies and will get none.
    pub(super) fn die(&mut self) -> (Deeds, Vec<Asker>) {
        let Some(life) = self.life.take() else {
            return (Deeds::default(), Vec::new());
        };
        let deeds = life.deeds();
        let outbox = Arc::clone(&life.outbox);
        drop(life);
        let replies = outbox.take_replies();
        (deeds, replies.into_iter().map(|(asker, _)| asker).collect())
    }

    /// Stops the process cleanly. Returns its last replies.
    pub(super) fn stop(&mut self) -> (Deeds, Vec<(Asker, ReplicaReply)>) {
        let Some(life) = self.life.take() else {
            return (Deeds::default(), Vec::new());
        };
        let deeds = life.deeds();
        life.driven.close();
        (deeds, life.outbox.take_replies())
    }

    /// Makes the file of incarnations say that the process was stopped cleanly.
    pub(super) fn say_that_it_ended_well(&self) {
        let file = self.disk().incarnation().unwrap_or_default();
        let text = String::from_utf8_lossy(&file).replace("\"ended\":false", "\"ended\":true");
        self.disk().set_incarnation(text.into_bytes());
    }

    /// The file of incarnations after a loss, but still with the current incarnation.
    pub(super) fn kept_incarnation(&self) -> Option<Vec<u8>> {
        let file = self.disk().incarnation()?;
        let text = String::from_utf8_lossy(&file).replace("\"behind\":false", "\"behind\":true");
        Some(text.into_bytes())
    }

    /// Receives the state of the cluster, unless it is known already. Never goes back to an older table.
    pub(super) fn hear(
        &mut self,
        store: &Store,
        table: &Arc<RoutingTable>,
        live: &BTreeSet<NodeId>,
    ) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        let is_known = |(epoch, known): &(u64, BTreeSet<NodeId>)| *epoch == table.epoch() && known == live;
        if life.told.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let is_new = table.epoch() > self.table.epoch();
        if is_new {
            self.table = Arc::clone(table);
        }
        self.remembers = true;
        if is_new && store.flaw == Some(Flaw::OwnsWhatItLost) {
            self.tell(store, live, Said::WithoutStore)?;
        }
        self.tell(store, live, Said::All)
    }

    fn tell(&mut self, store: &Store, live: &BTreeSet<NodeId>, said: Said) -> Result<(), String> {
        let Some(life) = &mut self.life else { return Ok(()) };
        let stores = match said {
            Said::WithoutStore => Vec::new(),
            Said::Remembered | Said::All => vec![store.replicated()],
        };
        let nodes = (0..store.nodes).map(super::topology::id);
        let view = ReplicaView {
            node: self.node,
            table: Arc::clone(&self.table),
            nodes: nodes.map(|node| (node, live.contains(&node))).collect(),
            near: BTreeSet::new(),
            leaving: leaving(&self.table),
            stores,
            dropped: Vec::new(),
            is_remembered: matches!(said, Said::Remembered),
        };
        if matches!(said, Said::All) {
            life.told = Some((self.table.epoch(), live.clone()));
        }
        life.driven.set_view(&view).map_err(|error| error.to_string())
    }

    /// The partitions that do not have all the data that moves give them, or that they ever had; `None` if it does not
    /// know.
    pub(super) fn lacking(&self) -> Option<PartitionSet> {
        let life = self.life.as_ref().filter(|life| life.told.is_some())?;
        let status = life.driven.status(STORE_ID)?;
        Some(status.held.without(&status.synchronised))
    }

    /// Whether it has all the data that moves give it, and everything that it ever had.
    pub(super) fn has_all(&self) -> bool {
        self.lacking().is_some_and(|lacking| lacking.is_empty())
    }

    /// Checks whether the lost data has been recovered.
    pub(super) fn look_what_is_lost(&mut self) {
        let is_behind = |life: &Life| life.driven.partitions_behind() > 0;
        self.has_lost &=
            !self.has_all() || self.life.as_ref().is_none_or(is_behind) || !self.disk().unreadable().is_empty();
    }

    /// Gives up the lost data that no other node has.
    pub(super) fn accept_losses(&self) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        let losses = life.driven.losses().into_iter();
        for loss in losses.filter(|loss| loss.partitions_alone > 0) {
            life.driven.accept_loss(&loss.id).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Sends a request that is answered immediately.
    pub(super) fn ask_now(&self, request: ReplicaRequest) -> Option<ReplicaReply> {
        let answer = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&answer);
        let life = self.life.as_ref()?;
        life.driven.request(request, move |reply| *theirs.lock() = Some(reply));
        answer.lock().take()
    }

    /// All readable records of a partition that it owns; `None` while some may be missing.
    pub(super) fn records(&self, partition: PartitionId) -> Option<BTreeMap<Bytes, Bytes>> {
        let life = self.life.as_ref()?;
        let page = life
            .driven
            .records_page(STORE_ID, (self.table.partitions(), partition), None, None, usize::MAX)
            .ok()??;
        // Unreadable records have no bytes.
        let readable = page.records.into_iter().filter(|pair| !pair.record.is_empty());
        Some(readable.map(|pair| (pair.key, pair.record)).collect())
    }
}

/// The information that a replica receives.
enum Said {
    /// The knowledge of an earlier process.
    Remembered,
    /// The cluster, before the store was created.
    WithoutStore,
    All,
}

impl Store {
    /// A request that uses no routing table, and whose result is not counted.
    pub(super) fn request(&self, operation: ReplicaOperation) -> ReplicaRequest {
        ReplicaRequest {
            store_id: STORE_ID,
            store: self.name.clone(),
            timeout_ms: 1_000,
            epoch: None,
            operation,
        }
    }

    fn replicated(&self) -> ReplicatedStore {
        let mut settings = self.settings;
        if self.flaw == Some(Flaw::CollectsEarly) {
            settings.tombstone_grace_ms = 0;
        }
        ReplicatedStore {
            id: STORE_ID,
            name: self.name.clone(),
            created_unix_ms: CREATED_UNIX_MS,
            replicas: self.replicas,
            value_type: Default::default(),
            settings,
            is_dropped: false,
            exceeded_quota_bytes: None,
        }
    }
}

impl Life {
    pub(super) fn deeds(&self) -> Deeds {
        Deeds {
            exchanges: self.driven.counter(ReplicaCounter::Exchanges),
            forgotten: self.driven.counter(ReplicaCounter::Collected),
            commits: self.driven.counter(ReplicaCounter::Commits),
        }
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replica of {}", self.node)
    }
}

/// The record of a key; `None` if it cannot be decoded.
pub(super) fn decode(record: &Bytes) -> Option<Record> {
    Record::decode(record.clone()).ok()
}

/// The nodes that moves take everything from.
fn leaving(table: &RoutingTable) -> BTreeSet<NodeId> {
    let planned: BTreeSet<NodeId> = table.planned().into_iter().flatten().collect();
    let owners = table.all_owners().iter().flatten().copied();
    owners.filter(|node| !planned.contains(node)).collect()
}
