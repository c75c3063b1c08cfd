//! A simulated process: the state of every role, and of each role separately.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fondaco_client::ClientError;
use fondaco_client::read::Read;
use fondaco_decisions::{Agent, Controller, LocalReplicas, ReplicaKey, ServingSet};
use fondaco_model::cluster::ClusterView;
use fondaco_model::{Identity, PartitionId, PartitionSet};

use crate::data::Disk;
use crate::event::ProcessEvent;
use crate::kernel::{Caller, Running};
use crate::link::Link;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) role: Role,
    pub(crate) running: Running<ProcessEvent>,
    /// How far its clock is ahead of the world's, in milliseconds.
    pub(crate) clock_ahead_ms: u64,
    pub(crate) link: Link,
    pub(crate) view: Arc<ClusterView>,
    /// Whether the view has been complete in this life.
    pub(crate) view_is_whole: bool,
}

#[derive(Debug)]
pub(crate) enum Role {
    Node(Box<Node>),
    Controller(Box<Leading>),
    Reader(Box<Reader>),
    Operator,
}

/// A data node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) identity: Identity,
    pub(crate) zone: String,
    /// Survives the end of the process.
    pub(crate) disk: Disk,
    /// When its disk last lost versions.
    pub(crate) lost_ms: Option<u64>,
    pub(crate) agent: Option<Agent>,
    pub(crate) local: LocalReplicas,
    pub(crate) fetches: BTreeMap<ReplicaKey, RunningFetch>,
    pub(crate) serving: ServingSet,
    /// Whether this session has announced the node.
    pub(crate) announced: bool,
    /// Failed fetches, for the flaw of never retrying.
    pub(crate) failed: Vec<ReplicaKey>,
}

/// A fetch in progress.
#[derive(Debug, Clone)]
pub(crate) struct RunningFetch {
    pub(crate) number: u64,
    pub(crate) todo: Vec<PartitionId>,
    pub(crate) partitions: PartitionSet,
    pub(crate) source: String,
    pub(crate) build: u64,
    /// Other processes that may have the version.
    pub(crate) peers: Vec<usize>,
    pub(crate) stopping: bool,
}

/// A controller.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// Present while it leads.
    pub(crate) controller: Option<Controller>,
    /// Whether it has read everything since it became leader.
    pub(crate) knows: bool,
    /// The number of pending changes.
    pub(crate) under_way: usize,
}

/// A router that reads.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) identity: Identity,
    /// Present once it knows a topology.
    pub(crate) caller: Option<Caller>,
    pub(crate) reads: BTreeMap<u64, ReaderRead>,
    pub(crate) announced: bool,
}

/// The answer for the key with this index.
pub(crate) type TakenAnswer = (usize, Result<Option<Bytes>, ClientError>);

/// A read in progress.
#[derive(Debug)]
pub(crate) struct ReaderRead {
    pub(crate) read: Read,
    /// The answers that were taken before all were there, with the indices of their keys, if they are taken so.
    pub(crate) taken: Option<Vec<TakenAnswer>>,
    pub(crate) begun_ms: u64,
    /// The time of its next scheduled wake-up.
    pub(crate) wake_us: u64,
}

impl Node {
    pub(crate) fn new(identity: Identity, zone: String) -> Self {
        Self {
            identity,
            zone,
            disk: Disk::default(),
            lost_ms: None,
            agent: None,
            local: LocalReplicas::default(),
            fetches: BTreeMap::new(),
            serving: ServingSet::default(),
            announced: false,
            failed: Vec::new(),
        }
    }
}

impl Reader {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            caller: None,
            reads: BTreeMap::new(),
            announced: false,
        }
    }
}

impl Process {
    pub(crate) fn new(role: Role, clock_ahead_ms: u64) -> Self {
        Self {
            role,
            running: Running::new(),
            clock_ahead_ms,
            link: Link::default(),
            view: Arc::default(),
            view_is_whole: false,
        }
    }

    /// Whether it reads the nodes' reports about their replicas.
    pub(crate) fn wants_reports(&self) -> bool {
        matches!(self.role, Role::Controller(_) | Role::Operator)
    }

    /// Ends the process: everything in memory is lost.
    pub(crate) fn end(&mut self) {
        self.running.end();
        self.link = Link::default();
        self.view = Arc::default();
        self.view_is_whole = false;
        match &mut self.role {
            Role::Node(node) => {
                node.agent = None;
                node.local = LocalReplicas::default();
                node.fetches.clear();
                node.serving = ServingSet::default();
                node.announced = false;
                node.failed.clear();
            }
            Role::Controller(leading) => **leading = Leading::default(),
            Role::Reader(reader) => **reader = Reader::new(reader.identity.clone()),
            Role::Operator => {}
        }
    }
}
