//! The strategies that are compared, with the controllers of each kind of request.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use fondaco_client::ReadOptions;
use fondaco_client::read::{
    AsynchronousUnion, FanOut, FanOutController, Fixed, GlobalRate, NonUnion, Pd, SynchronousUnion, named,
};
use fondaco_model::StrategyName;

use super::model::{CLIENT_RATE, NODE_RATE};

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The values of keys.
    LookUp,
    /// A union that the query waits for.
    Union,
    /// A union in the background.
    Background,
    /// A search in all partitions.
    Search,
}

/// A way to divide keys among nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Each partition's nodes in turn.
    RoundRobin,
    /// As few nodes as possible.
    SetCover,
    /// Groups, as many as the controller of the kind of request says.
    Controlled,
    /// The same with hedging.
    Hedged,
    /// So many groups for all requests.
    Groups(usize),
}

impl Contender {
    pub fn name(self) -> String {
        match self {
            Self::RoundRobin => "round-robin".into(),
            Self::SetCover => "set cover".into(),
            Self::Controlled => "cluster-aware, controlled".into(),
            Self::Hedged => "cluster-aware, controlled, hedged".into(),
            Self::Groups(1) => "cluster-aware, 1 group".into(),
            Self::Groups(groups) => format!("cluster-aware, {groups} groups"),
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Result<Self> {
        let groups = (1..=10).map(Self::Groups);
        let all = [Self::RoundRobin, Self::SetCover, Self::Controlled, Self::Hedged];
        let found = all.into_iter().chain(groups).find(|contender| contender.name() == name);
        found.with_context(|| format!("no strategy is called {name:?}"))
    }

    /// The options of a client's requests for this work. Controllers have a state: each client has its own.
    pub fn options(self, work: Work) -> ReadOptions {
        let (strategy, fan_out) = match self {
            Self::RoundRobin => (StrategyName::RoundRobin, FanOut::All),
            Self::SetCover => (StrategyName::SetCover, FanOut::All),
            Self::Controlled | Self::Hedged => (StrategyName::Cluster, FanOut::Controlled(controller(work))),
            Self::Groups(groups) => (StrategyName::Cluster, FanOut::Controlled(Arc::new(Fixed(groups)))),
        };
        ReadOptions {
            strategy: Some(named(strategy)),
            fan_out,
            hedge: self == Self::Hedged,
            // No query fails for being slow: all are counted.
            deadline: Duration::from_secs(3600),
            ..ReadOptions::default()
        }
    }
}

/// The controller that the paper has for this work (IV.C, V.C).
fn controller(work: Work) -> Arc<dyn FanOutController> {
    match work {
        Work::LookUp => Arc::new(NonUnion),
        Work::Union => Arc::new(SynchronousUnion),
        Work::Background => Arc::new(AsynchronousUnion::default()),
        Work::Search => Arc::new(Pd::around(Arc::new(GlobalRate::new(CLIENT_RATE, NODE_RATE)))),
    }
}
