//! How a client learns where keys are: told by its process, or by asking the cluster itself.

mod seeds;

use std::sync::Arc;

use fondaco_model::cluster::Topology;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::link::Transport;

/// Where topologies come from.
#[derive(Debug)]
pub(crate) enum TopologySource {
    /// From whoever made the client, who knows them from the coordination service.
    Given(watch::Receiver<Option<Arc<Topology>>>),
    /// From any node or router, these at first.
    Seeds(Vec<String>),
}

/// Topologies as they come.
#[derive(Debug)]
pub(crate) struct Topologies {
    pub(crate) latest: watch::Receiver<Option<Arc<Topology>>>,
    /// Why there is none, if there is none.
    pub(crate) trouble: watch::Receiver<Arc<str>>,
    /// Asks for a newer one, where that can be asked for.
    pub(crate) wanted: Arc<Notify>,
    /// What must be ended with the client.
    pub(crate) task: Option<JoinHandle<()>>,
}

impl TopologySource {
    /// Begins to follow the source. To be called within a tokio runtime. Who roams asks another server each
    /// time.
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
