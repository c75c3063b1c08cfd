//! How a client learns the topology: from its process, or by asking the cluster itself.

mod seeds;

use std::sync::Arc;

use fondaco_model::cluster::Topology;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::link::Transport;

/// Where topologies come from.
#[derive(Debug)]
pub(crate) enum TopologySource {
    /// From the code that made the client, which has them from the coordination service.
    Given(watch::Receiver<Option<Arc<Topology>>>),
    /// From any node or router, these at first.
    Seeds(Vec<String>),
}

/// Topologies as they come.
#[derive(Debug)]
pub(crate) struct Topologies {
    pub(crate) latest: watch::Receiver<Option<Arc<Topology>>>,
    /// Why the topology is missing, if it is.
    pub(crate) trouble: watch::Receiver<Arc<str>>,
    /// Requests a newer one, where the source allows it.
    pub(crate) wanted: Arc<Notify>,
    /// What must be ended with the client.
    pub(crate) task: Option<JoinHandle<()>>,
}

impl TopologySource {
    /// Begins to follow the source. Must be called within a tokio runtime. With `roams`, each request goes to another
    /// server.
    pub(crate) fn follow(self, transport: &Arc<Transport>, wanted: Arc<Notify>, roams: bool) -> Topologies {
        let (trouble, heard) = watch::channel(Arc::from("nothing was heard yet"));
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
