//! A simulated process: what every role has, and what each has of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_client::quorum::QuorumCounters;
use fondaco_client::read::{Directory, Read, Steering, SteeringPolicy};
use fondaco_model::cluster::{Agent, ClusterView, Controller, LocalReplicas, ReplicaKey, ServingSet};
use fondaco_model::{Identity, PartitionId};

use crate::data::Disk;
use crate::event::Event;
use crate::link::Link;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) role: Role,
    pub(crate) up: bool,
    /// Counts its lives: what belongs to a former one does not reach it.
    pub(crate) life: u32,
    /// Until when it is stopped; what reaches it meanwhile waits.
    pub(crate) stopped_until_ms: u64,
    pub(crate) waiting: Vec<Event>,
    /// What its clock shows more than the world's, in milliseconds.
    pub(crate) clock_ahead_ms: u64,
    pub(crate) link: Link,
    pub(crate) view: Arc<ClusterView>,
    /// Whether the view has everything, in this life.
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
    /// Survives its lives.
    pub(crate) disk: Disk,
    /// When it lost versions from its disk last.
    pub(crate) lost_ms: Option<u64>,
    pub(crate) agent: Option<Agent>,
    pub(crate) local: LocalReplicas,
    pub(crate) fetches: BTreeMap<ReplicaKey, RunningFetch>,
    pub(crate) serving: ServingSet,
    /// Whether this session has announced it.
    pub(crate) announced: bool,
    /// Fetches that failed, for the flaw of never trying again.
    pub(crate) failed: Vec<ReplicaKey>,
}

/// A fetch that runs.
#[derive(Debug, Clone)]
pub(crate) struct RunningFetch {
    pub(crate) number: u64,
    pub(crate) todo: Vec<PartitionId>,
    pub(crate) source: String,
    pub(crate) build: u64,
    /// Other processes that may have it.
    pub(crate) peers: Vec<usize>,
    pub(crate) stopping: bool,
}

/// A controller.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// While it leads.
    pub(crate) controller: Option<Controller>,
    /// Whether it has read everything since it leads.
    pub(crate) knows: bool,
    /// Changes that were sent, and of which nothing was heard.
    pub(crate) under_way: usize,
}

/// A router that reads.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) identity: Identity,
    pub(crate) directory: Option<Arc<Directory>>,
    pub(crate) steering: Steering,
    pub(crate) counts: QuorumCounters,
    pub(crate) reads: BTreeMap<u64, ReaderRead>,
    pub(crate) announced: bool,
}

/// A read under way.
#[derive(Debug)]
pub(crate) struct ReaderRead {
    pub(crate) read: Read,
    pub(crate) begun_ms: u64,
    /// When it is to be woken, as far as that has been arranged.
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
            directory: None,
            steering: Steering::new(&SteeringPolicy::default()),
            counts: QuorumCounters::default(),
            reads: BTreeMap::new(),
            announced: false,
        }
    }
}

impl Process {
    pub(crate) fn new(role: Role, clock_ahead_ms: u64) -> Self {
        Self {
            role,
            up: true,
            life: 0,
            stopped_until_ms: 0,
            waiting: Vec::new(),
            clock_ahead_ms,
            link: Link::default(),
            view: Arc::default(),
            view_is_whole: false,
        }
    }

    /// Whether it looks at what nodes say of their replicas.
    pub(crate) fn wants_reports(&self) -> bool {
        matches!(self.role, Role::Controller(_) | Role::Operator)
    }

    /// The process as it is after its end: what it kept in memory is gone.
    pub(crate) fn end(&mut self) {
        self.up = false;
        self.life += 1;
        self.waiting.clear();
        self.stopped_until_ms = 0;
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
