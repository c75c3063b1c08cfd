//! The replica of a node: the real one, which the world drives, on a disk that outlives its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::{Record, VersionedSettings};
use fondaco_model::{NodeId, PartitionCount, PartitionId, RoutingTable, StoreName};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{OnReply, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::{DrivenReplicas, Engines, Peers, ReplicaCounter, ReplicaOptions, ReplicaView, ReplicatedStore};
use parking_lot::Mutex;

use super::disk::{Disk, DiskCopy};
use super::machine::{Machine, Outbox};
use super::message::Asker;
use super::scenario::Flaw;

/// The number of the store, and when it was created.
pub(super) const STORE_ID: u16 = 1;
const CREATED_UNIX_MS: u64 = 7;

/// The name of its table.
pub(super) const TABLE: &str = "store-1-7";

/// How often a partition is compared, about.
const EXCHANGE_PERIOD: Duration = Duration::from_secs(4);

/// How often it is looked for hints to hand over.
const HANDOFF_PERIOD: Duration = Duration::from_millis(500);

/// How often a node looks for deletions to forget.
const SWEEP_PERIOD: Duration = Duration::from_secs(3);

/// How long another node may take for a request in the background.
const PEER_TIMEOUT: Duration = Duration::from_secs(1);

/// How many threads a node would commit with.
const SHARDS: usize = 2;

/// What all replicas know of the store.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) name: StoreName,
    pub(super) partitions: PartitionCount,
    pub(super) settings: VersionedSettings,
    /// How many nodes hold each partition.
    pub(super) replicas: usize,
    pub(super) nodes: usize,
    pub(super) flaw: Option<Flaw>,
}

impl Store {
    /// The partition of a key.
    pub(super) fn partition_of(&self, key: &[u8]) -> PartitionId {
        let key = WireKey::new(&self.name, key);
        key.map_or(PartitionId::new(0), |key| self.partitions.partition_of(key.slot()))
    }
}

/// The replica of a node.
pub(super) struct Replica {
    pub(super) node: NodeId,
    pub(super) machine: Arc<Machine>,
    /// A copy of the disk, as it was at an earlier end of the process, with the routing table that it knew.
    pub(super) copy: Option<(DiskCopy, Arc<RoutingTable>)>,
    /// Whether its disk was lost, or a part of it, and something of what it holds, or is to own, has not been had from
    /// others yet.
    pub(super) has_lost: bool,
    /// The routing table that it goes by.
    pub(super) table: Arc<RoutingTable>,
    /// Whether the next process remembers that.
    pub(super) remembers: bool,
    /// What the next process is told to be lost.
    pub(super) went_back: bool,
    /// How often the machine was started.
    pub(super) boots: u32,
    /// The process that runs.
    pub(super) life: Option<Life>,
}

/// A process.
pub(super) struct Life {
    pub(super) driven: DrivenReplicas,
    pub(super) outbox: Arc<Outbox>,
    /// The chores that are polled.
    pub(super) chores: Vec<Chore>,
    /// What chores wait for.
    pub(super) asks: BTreeMap<u64, OnReply>,
    /// Of each shard, whether the world knows already when it goes on.
    pub(super) is_busy: Vec<bool>,
    /// When chores are polled next, in microseconds.
    pub(super) polled_at_us: u64,
    /// The epoch of the table and the nodes that it was told to be there.
    told: Option<(u64, BTreeSet<NodeId>)>,
}

/// A chore of the replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chore {
    pub(super) number: usize,
    pub(super) name: &'static str,
}

/// The chores that are polled: all but the one that lets engines go on that have found a loss while they were in use, which
/// the disk here does not.
fn polled(driven: &DrivenReplicas, flaw: Option<Flaw>) -> Vec<Chore> {
    let chores = driven.chores().into_iter().enumerate();
    let all = chores.map(|(number, name)| Chore { number, name });
    let never = |name| name == "go on" || name == "reconcile" && flaw == Some(Flaw::NeverCompares);
    all.filter(|chore| !never(chore.name)).collect()
}

/// What a process has done.
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

    pub(super) fn disk(&self) -> &Disk {
        &self.machine.disk
    }

    /// The process starts. The first one is there before the store is.
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

    /// The process dies: those that waited for its answers get none. Returns them.
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

    /// The process ends in good order: what it has still answered.
    pub(super) fn stop(&mut self) -> (Deeds, Vec<(Asker, ReplicaReply)>) {
        let Some(life) = self.life.take() else {
            return (Deeds::default(), Vec::new());
        };
        let deeds = life.deeds();
        life.driven.close();
        (deeds, life.outbox.take_replies())
    }

    /// The file of incarnations says that the process has ended in good order.
    pub(super) fn say_that_it_ended_well(&self) {
        let file = self.disk().incarnation().unwrap_or_default();
        let text = String::from_utf8_lossy(&file).replace("\"ended\":false", "\"ended\":true");
        self.disk().set_incarnation(text.into_bytes());
    }

    /// The file of incarnations, as if something was lost, and nothing of the incarnation that lasts.
    pub(super) fn kept_incarnation(&self) -> Option<Vec<u8>> {
        let file = self.disk().incarnation()?;
        let text = String::from_utf8_lossy(&file).replace("\"behind\":false", "\"behind\":true");
        Some(text.into_bytes())
    }

    /// Hears how the cluster is, unless it knows. It never goes back.
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
            stores,
            dropped: Vec::new(),
            is_remembered: matches!(said, Said::Remembered),
        };
        if matches!(said, Said::All) {
            life.told = Some((self.table.epoch(), live.clone()));
        }
        life.driven.set_view(&view).map_err(|error| error.to_string())
    }

    /// Whether it has what the plan under way gives it, and all that it ever had.
    pub(super) fn has_all(&self) -> bool {
        let status = self.life.as_ref().filter(|life| life.told.is_some());
        let status = status.and_then(|life| life.driven.status(STORE_ID));
        status.is_some_and(|status| status.held == status.synchronised)
    }

    /// Looks whether what was lost is here again.
    pub(super) fn look_what_is_lost(&mut self) {
        let is_behind = |life: &Life| life.driven.partitions_behind() > 0;
        self.has_lost &=
            !self.has_all() || self.life.as_ref().is_none_or(is_behind) || !self.disk().unreadable().is_empty();
    }

    /// Gives up what it has lost and no other node has.
    pub(super) fn accept_losses(&self) -> Result<(), String> {
        let Some(life) = &self.life else { return Ok(()) };
        let losses = life.driven.losses().into_iter();
        for loss in losses.filter(|loss| loss.partitions_alone > 0) {
            life.driven.accept_loss(&loss.id).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Asks what is answered at once.
    pub(super) fn ask_now(&self, request: ReplicaRequest) -> Option<ReplicaReply> {
        let answer = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&answer);
        let life = self.life.as_ref()?;
        life.driven.request(request, move |reply| *theirs.lock() = Some(reply));
        answer.lock().take()
    }

    /// All that it can read of a partition that it owns; `None` while it may lack something.
    pub(super) fn records(&self, partition: PartitionId) -> Option<BTreeMap<Bytes, Bytes>> {
        let life = self.life.as_ref()?;
        let page = life
            .driven
            .records_page(STORE_ID, partition, None, None, usize::MAX)
            .ok()??;
        // What cannot be read has no bytes.
        let readable = page.records.into_iter().filter(|pair| !pair.record.is_empty());
        Some(readable.map(|pair| (pair.key, pair.record)).collect())
    }
}

/// What a replica is told.
enum Said {
    /// What an earlier process knew.
    Remembered,
    /// The cluster, before the store was created.
    WithoutStore,
    All,
}

impl Store {
    /// A request whose answer is not counted: it goes by no routing table.
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
            settings,
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

/// The record under a key; none if it cannot be understood.
pub(super) fn decode(record: &Bytes) -> Option<Record> {
    Record::decode(record.clone()).ok()
}
