//! A router's work: it announces itself, and publishes the cluster to its requests. It holds no data.

use std::sync::Arc;
use std::time::Duration;

use fondaco_catalog::{Catalog, Member, Membership, PeerAccess, SharedCatalog, StoreSchemas, StoreStreams};
use fondaco_coordination::{Coordination, CoordinationError, SessionState};
use fondaco_decisions::{RecordPath, check_protocol};
use fondaco_model::Identity;
use fondaco_model::cluster::RouterRecord;

use crate::change_signal::{ChangeSignal, ChangeWatcher};
use crate::error::ClusterError;
use crate::layout;
use crate::mirror::{Mirror, Origin};
use crate::peer_topology::PeerTopology;
use crate::worker::{Ending, Worker};

/// How often a pass begins when nothing changes.
const TICK: Duration = Duration::from_secs(1);

/// The router of a process. Dropping it stops it.
pub struct RouterWork {
    shared: Arc<Shared>,
    _worker: Worker,
}

struct Shared {
    change_signal: Arc<ChangeSignal>,
    passes: ChangeWatcher,
    mirror: Mirror,
}

struct Work {
    shared: Arc<Shared>,
    coordination: Arc<dyn Coordination>,
    catalog: Arc<SharedCatalog>,
    peer_topology: PeerTopology,
    identity: Identity,
    zone: Option<String>,
    record: RouterRecord,
    /// The session in which it is announced.
    announced: Option<u64>,
}

impl RouterWork {
    /// Starts the thread.
    pub fn start(
        coordination: Arc<dyn Coordination>,
        mirror: Mirror,
        catalog: Arc<SharedCatalog>,
        access: PeerAccess,
        identity: Identity,
        record: RouterRecord,
    ) -> Result<Self, ClusterError> {
        let change_signal = Arc::new(ChangeSignal::default());
        mirror.raise_on_change(&change_signal);
        let shared = Arc::new(Shared {
            change_signal: Arc::clone(&change_signal),
            passes: ChangeWatcher::default(),
            mirror,
        });
        let zone = access.zone.clone();
        let wanted = Arc::clone(catalog.topology_wanted());
        let mut work = Work {
            shared: Arc::clone(&shared),
            coordination,
            catalog,
            peer_topology: PeerTopology::new(access, wanted, Arc::clone(&change_signal)),
            identity,
            zone,
            record,
            announced: None,
        };
        Ok(Self {
            shared,
            _worker: Worker::start("router", change_signal, move |ending| work.run(ending))?,
        })
    }

    /// Waits until requests see the present view of the cluster.
    pub fn wait_looked(&self, timeout: Duration) {
        self.shared.passes.wait(&self.shared.change_signal, timeout);
    }

    /// Why the router cannot serve; empty if it can.
    pub fn not_ready(&self) -> Vec<String> {
        let sighting = self.shared.mirror.sighting();
        if let Err(error) = check_protocol(&sighting.view) {
            return vec![error.to_string()];
        }
        match (sighting.origin, &sighting.view.routing) {
            (Origin::Nothing, _) => vec!["the coordination service has not answered yet".to_owned()],
            (_, None) => vec!["there is no routing table yet: too few nodes are live".to_owned()],
            (_, Some(_)) => Vec::new(),
        }
    }
}

impl Work {
    fn run(&mut self, ending: &Ending) {
        let shared = Arc::clone(&self.shared);
        while !ending.has_come() {
            let seen = shared.change_signal.count();
            let pass = shared.passes.begin();
            if let Err(error) = self.announce() {
                tracing::warn!(%error, "cannot announce this router: trying again");
            }
            self.publish();
            // No reader is slow enough to hold a former catalog for long, and a catalog is small.
            self.catalog.reap();
            shared.passes.end(pass);
            shared.change_signal.wait(seen, TICK);
        }
    }

    fn announce(&mut self) -> Result<(), ClusterError> {
        let session = self.coordination.session();
        let sighting = self.shared.mirror.sighting();
        if !sighting.is_current
            || session.state != SessionState::Connected
            || self.announced == Some(session.generation)
        {
            return Ok(());
        }
        // Otherwise the number of this router would bring the cluster back to a former protocol.
        check_protocol(&sighting.view)?;
        let path = layout::path(&RecordPath::Router(self.identity.clone()))?;
        let bytes = serde_json::to_vec(&self.record).map_err(ClusterError::invalid_metadata(&path))?;
        match self.coordination.create_ephemeral(&path, &bytes) {
            // No other process has its identity, which was made when this process started.
            Ok(_) | Err(CoordinationError::Conflict { .. }) => {
                self.announced = Some(session.generation);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn publish(&mut self) {
        let sighting = self.shared.mirror.sighting();
        let Some(topology) = self.peer_topology.changed(&sighting, None) else {
            return;
        };
        let catalog = self.catalog.load();
        let before = catalog.membership();
        let known = before
            .map(|membership| membership.schemas().clone())
            .unwrap_or_default();
        let schemas = StoreSchemas::of(&sighting.view, &known);
        let streams = StoreStreams::of(&sighting.view);
        if before.is_some_and(|before| {
            **before.topology() == topology && schemas.is_same(&known) && *before.streams() == streams
        }) {
            return;
        }
        drop(catalog);
        let member = Member::Router(self.identity.clone());
        let membership = Membership::new(Arc::new(topology), member)
            .with_schemas(schemas)
            .with_streams(streams)
            .in_zone(self.zone.clone());
        self.catalog
            .publish(Catalog::default().in_cluster(Arc::new(membership)));
    }
}
