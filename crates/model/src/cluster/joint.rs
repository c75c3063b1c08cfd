//! Stores whose versions became current by one write.
//!
//! Each of their records names the others, and how often each had been swapped then. So a process that has read the new record of
//! one of them knows that its records of the others are older than the write, though it was told of one entry at a time. Such a
//! view is never used: requests would see the new version of one store beside the old one of another. The counts only grow, so
//! views that are complete stay so when the later record of each store is taken from either.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::record::StoreRecord;
use super::view::{ClusterView, Revised};
use crate::name::StoreName;

/// The state of a store after it was swapped together with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointSwap {
    /// The number of the store: another one may have its name by now.
    pub id: u16,
    /// How often another version had become current.
    pub swaps: u64,
}

impl JointSwap {
    fn of(store: &StoreRecord) -> Self {
        Self {
            id: store.id,
            swaps: store.versions.swaps(),
        }
    }

    /// Whether a store is as new as this, or another one.
    fn is_reached(self, store: &StoreRecord) -> bool {
        store.id != self.id || store.versions.swaps() >= self.swaps
    }
}

/// Marks records as swapped by one write. What they know of earlier writes stays, as long as those stores exist.
pub fn join(view: &ClusterView, records: &mut [StoreRecord]) {
    let states = records
        .iter()
        .map(|record| (record.definition.name.clone(), JointSwap::of(record)));
    let states: BTreeMap<_, _> = states.collect();
    for record in records.iter_mut().filter(|_| states.len() > 1) {
        record.joint.retain(|name, state| {
            let store = view.stores.get(name);
            store.is_some_and(|store| store.record.id == state.id)
        });
        record.joint.extend(states.clone());
    }
}

impl ClusterView {
    /// Each store of which another record requires a later state than this view has, with the stores that require it.
    pub fn behind(&self) -> BTreeMap<StoreName, BTreeSet<StoreName>> {
        let mut behind = BTreeMap::<_, BTreeSet<_>>::new();
        for (name, store) in &self.stores {
            for (other, state) in &store.record.joint {
                if self
                    .stores
                    .get(other)
                    .is_some_and(|other| !state.is_reached(&other.record))
                {
                    behind.entry(other.clone()).or_default().insert(name.clone());
                }
            }
        }
        behind
    }

    /// The other stores whose current version became current by the same write as that of this one.
    pub fn swapped_with<'a>(&'a self, store: &'a StoreRecord) -> impl Iterator<Item = &'a Revised<StoreRecord>> {
        let name = &store.definition.name;
        let own = JointSwap::of(store);
        let is_last = |store: &StoreRecord, name, state| store.joint.get(name) == Some(&state);
        let others = store
            .joint
            .keys()
            .filter(move |other| *other != name && is_last(store, name, own));
        let others = others.filter_map(|other| self.stores.get(other));
        others.filter(move |other| {
            let (record, state) = (&other.record, JointSwap::of(&other.record));
            is_last(store, &record.definition.name, state) && is_last(record, name, own)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreDefinition;

    fn store(name: &str, id: u16) -> StoreRecord {
        StoreRecord::new(StoreDefinition::batch(name.parse().unwrap()), id, 0)
    }

    fn view(stores: &[&StoreRecord]) -> ClusterView {
        let revised = |store: &&StoreRecord| Revised {
            record: (*store).clone(),
            revision: 1,
        };
        ClusterView {
            stores: stores
                .iter()
                .map(|store| (store.definition.name.clone(), revised(store)))
                .collect(),
            ..ClusterView::default()
        }
    }

    fn swap(mut store: StoreRecord) -> StoreRecord {
        let version = store.versions.allocate();
        store.versions.make_current(version);
        store
    }

    fn swap_together<const N: usize>(stores: [&StoreRecord; N], others: &[&StoreRecord]) -> [StoreRecord; N] {
        let mut swapped = stores.map(|store| swap(store.clone()));
        join(&view(&[&stores[..], others].concat()), &mut swapped);
        swapped
    }

    #[test]
    fn a_view_with_a_part_of_a_swap_needs_the_other_stores() {
        let before = [store("a", 1), store("b", 2), store("c", 3)];
        let [a, b] = swap_together([&before[0], &before[1]], &[]);
        // Then `a` is swapped with another store, and alone.
        let [a_later, c] = swap_together([&a, &before[2]], &[&b]);
        let a_last = swap(a_later.clone());
        let behind = |stores: &[&StoreRecord]| {
            let behind = view(stores).behind().into_keys();
            behind.map(|name| name.to_string()).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(behind(&[&before[0], &before[1], &before[2]]), none);
        assert_eq!(behind(&[&a, &b, &before[2]]), none);
        assert_eq!(behind(&[&a, &before[1]]), ["b"]);
        assert_eq!(behind(&[&before[0], &b]), ["a"]);
        assert_eq!(behind(&[&a_later, &b, &before[2]]), ["c"]);
        assert_eq!(behind(&[&a_last, &before[1], &c]), ["b"], "what it knew of `b` stays");
        assert_eq!(behind(&[&a_last, &b, &c]), none);
        assert_eq!(behind(&[&a]), none, "`b` was dropped");
        assert_eq!(behind(&[&a, &store("b", 9)]), none, "another store has the name");
    }

    #[test]
    fn only_stores_that_have_not_been_swapped_since_belong_together() {
        let before = [store("a", 1), store("b", 2), store("c", 3)];
        let [a, b, c] = swap_together([&before[0], &before[1], &before[2]], &[]);
        let with = |store: &StoreRecord, stores: &[&StoreRecord]| {
            let view = view(stores);
            let with = view
                .swapped_with(store)
                .map(|other| other.record.definition.name.to_string());
            with.collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(with(&a, &[&a, &b, &c]), ["b", "c"]);
        let b_later = swap(b.clone());
        assert_eq!(with(&a, &[&a, &b_later, &c]), ["c"]);
        assert_eq!(with(&b_later, &[&a, &b_later, &c]), none);
        let [a_later, c_later] = swap_together([&a, &c], &[&b]);
        assert_eq!(with(&a_later, &[&a_later, &b, &c_later]), ["c"]);
        assert_eq!(with(&b, &[&a_later, &b, &c_later]), none);
    }
}
