//! The catalog that requests see: the model's serving set and the topology.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_catalog::{
    Canary, Catalog, Member, Membership, Serving, ServingStore, SharedCatalog, StoreId, StoreSchemas, StoreStreams,
};
use fondaco_decisions::{ReplicaKey, ServingSet, ServingStore as StoreToServe};
use fondaco_model::cluster::{ClusterView, Topology};
use fondaco_model::{CanaryCounts, NodeId, StoreKind, StoreName, VersionNumber};

use crate::disk::Disk;
use crate::streams::Streams;

/// Publishes what a node serves, and its cluster.
pub(crate) struct Publishing {
    catalog: Arc<SharedCatalog>,
    disk: Arc<Disk>,
    streams: Arc<Streams>,
    set: ServingSet,
    membership: Option<Arc<Membership>>,
}

impl Publishing {
    pub(crate) fn new(catalog: Arc<SharedCatalog>, disk: Arc<Disk>, streams: Arc<Streams>) -> Self {
        Self {
            catalog,
            disk,
            streams,
            set: ServingSet::default(),
            membership: None,
        }
    }

    /// Sets the current topology, and the schemas in a view. Requests see them after the next [`publish`](Self::publish). Returns
    /// whether they differ from the last ones.
    pub(crate) fn set_topology(&mut self, topology: Topology, view: &ClusterView, node: NodeId) -> bool {
        let before = self.membership.as_ref();
        let known = before
            .map(|membership| membership.schemas().clone())
            .unwrap_or_default();
        let (schemas, streams) = (StoreSchemas::of(view, &known), StoreStreams::of(view));
        if before.is_some_and(|before| {
            **before.topology() == topology && schemas.is_same(&known) && *before.streams() == streams
        }) {
            return false;
        }
        let membership = Membership::new(Arc::new(topology), Member::Node(node));
        self.membership = Some(Arc::new(membership.with_schemas(schemas).with_streams(streams)));
        true
    }

    /// The schemas that requests see.
    pub(crate) fn schemas(&self) -> StoreSchemas {
        let membership = self.membership.as_ref();
        membership
            .map(|membership| membership.schemas().clone())
            .unwrap_or_default()
    }

    /// The counts of canaries under way.
    pub(crate) fn canaries(&self) -> BTreeMap<ReplicaKey, CanaryCounts> {
        let catalog = self.catalog.load();
        let counts = |(store, canary): (&Arc<ServingStore>, &Canary)| {
            let key = (store.name.clone(), canary.number);
            (key, canary.meter().counts())
        };
        catalog.canaries().map(counts).collect()
    }

    /// Sets the serving set. Requests see it after the next [`publish`](Self::publish).
    pub(crate) fn set_serving(&mut self, set: ServingSet) {
        self.set = set;
    }

    /// Publishes the catalog to requests. `why_not` gives the reason why a current version is not open.
    pub(crate) fn publish(&self, why_not: impl Fn(&StoreName, VersionNumber) -> Option<String>) {
        let stores = self.set.stores.iter();
        let stores = stores.filter_map(|(name, store)| self.store(name, store, &why_not));
        let catalog = Catalog::new(stores);
        self.catalog.publish(match &self.membership {
            Some(membership) => catalog.in_cluster(Arc::clone(membership)),
            None => catalog,
        });
        self.disk.catalog_changed();
    }

    /// Publishes an empty catalog to requests.
    pub(crate) fn withdraw(&self) {
        self.catalog.publish(Catalog::default());
        self.disk.catalog_changed();
    }

    fn store(
        &self,
        name: &StoreName,
        store: &StoreToServe,
        why_not: &impl Fn(&StoreName, VersionNumber) -> Option<String>,
    ) -> Option<ServingStore> {
        let open = |&number: &VersionNumber| Some((number, self.disk.version(name, number)?));
        let mut others: Vec<_> = store.versions.keys().filter_map(open).collect();
        let overlays: BTreeMap<_, _> = match store.kind {
            StoreKind::Batch | StoreKind::Versioned => BTreeMap::new(),
            StoreKind::Hybrid => {
                let overlay = |(number, _): &(VersionNumber, _)| Some((*number, self.streams.overlay(name, *number)?));
                others.iter().filter_map(overlay).collect()
            }
        };
        for (number, version) in &others {
            if let Some(lifetimes) = overlays.get(number).and_then(|overlay| overlay.options().lifetimes) {
                version.set_lifetimes(lifetimes);
            }
        }
        // Without its later events a version of a hybrid store would answer wrongly.
        others.retain(|(number, _)| store.kind != StoreKind::Hybrid || overlays.contains_key(number));
        let serving = match store.current {
            None => Serving::Nothing,
            Some(current) => match others.iter().position(|(number, _)| *number == current) {
                Some(at) => {
                    let (number, version) = others.swap_remove(at);
                    Serving::Version(number, version)
                }
                None => match why_not(name, current) {
                    Some(reason) => Serving::Failed(current, reason),
                    None => Serving::Nothing,
                },
            },
        };
        Some(ServingStore {
            name: name.clone(),
            // The model gives out only valid numbers; others come from a tampered entry.
            id: StoreId::new(store.id)?,
            kind: store.kind,
            serving,
            others,
            overlays,
        })
    }
}
