//! How a client learns the topology: from its own process, or by asking the cluster.

mod seeds;

use std::sync::Arc;

use fondaco_model::cluster::Topology;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::link::Transport;

/// The source of topologies.
#[derive(Debug)]
pub(crate) enum TopologySource {
    /// The code that made the client, which gets them from the coordination service.
    Given(watch::Receiver<Option<Arc<Topology>>>),
    /// Any node or router, starting with these.
    Seeds(Vec<String>),
}

/// Why the topology is missing.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) reason: Arc<str>,
    /// Whether each server that answers refuses the client, so that waiting is in vain.
    pub(crate) refused: bool,
}

/// A stream of topologies.
#[derive(Debug)]
pub(crate) struct Topologies {
    pub(crate) latest: watch::Receiver<Option<Arc<Topology>>>,
    /// Why the topology is missing, if it is.
    pub(crate) trouble: watch::Receiver<Trouble>,
    /// Requests a newer one, where the source allows it.
    pub(crate) wanted: Arc<Notify>,
    /// The task to end with the client.
    pub(crate) task: Option<JoinHandle<()>>,
}

impl TopologySource {
    /// Starts to follow the source. Must be called within a tokio runtime. With `roams`, each request goes to a
    /// different server.
    pub(crate) fn follow(self, transport: &Arc<Transport>, wanted: Arc<Notify>, roams: bool) -> Topologies {
        let (trouble, heard) = watch::channel(Trouble {
            reason: Arc::from("no server has answered yet"),
            refused: false,
        });
        match self {
            Self::Given(latest) => Topologies {
                latest,
                trouble: heard,
                wanted,
                task: None,
            },
            Self::Seeds(seeds) => {
                let (found, latest) = watch::channel(None);
                let mut asking = seeds::Seeds::new(seeds, Arc::clone(transport), found, trouble, Arc::clone(&wanted));
                asking.roams = roams;
                Topologies {
                    latest,
                    trouble: heard,
                    wanted,
                    task: Some(transport.spawn(asking.run())),
                }
            }
        }
    }
}
