//! One pass over entries: it begins with the former view, and puts the records of the entries that it reads into it.
//!
//! An entry that cannot be parsed leaves its former record in place, and so does the missing entry of a store that no
//! record declares dropped. A store and the record of its dropping are read together, since the change of one entry may be told
//! before that of the other: between them, its data would seem to be that of no store. Stores that were swapped by one write are read
//! together, too. Nothing of the pass is seen before the mirror accepts its result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fondaco_api::SettingChanges;
use fondaco_coordination::{Coordination, CoordinationError, Entry, EntryPath};
use fondaco_decisions::{Discontinuity, RecordPath, check_continues};
use fondaco_model::StoreName;
use fondaco_model::cluster::{ClusterView, DroppedStore, Revised, SchemaKey, StoreRecord};
use serde::de::DeserializeOwned;

use super::sighting::Sighting;
use crate::layout;
use crate::layout::{FOLDERS, SETTINGS};

/// Entries that cannot be used, and why.
pub(super) type Problems = BTreeMap<EntryPath, String>;

/// Why a store without an entry is still in the view.
const LOST: &str = "it is missing, though the store was not dropped: the store stays as it was seen last, and nothing is \
                    deleted; write the entry back: fondaco cluster adopt, or give the store up: fondaco cluster adopt \
                    --present";

/// Why a schema without an entry is still in the view.
const LOST_SCHEMA: &str = "it is missing, though schemas are never deleted: values of it are read as before; write the entry back: \
                           fondaco cluster adopt";

/// Why a store is in the view as it was before it was swapped together with others.
const INCOMPLETE: &str = "it was swapped together with a store whose entry cannot be used: it stays as it was seen last, until that entry can";

/// A pass under way.
pub(super) struct Reading<'a> {
    coordination: &'a dyn Coordination,
    former: Arc<ClusterView>,
    former_problems: Problems,
    found: Found,
}

/// The result of a pass.
pub(super) struct Found {
    pub(super) view: ClusterView,
    pub(super) settings: Option<Revised<SettingChanges>>,
    pub(super) problems: Problems,
}

impl<'a> Reading<'a> {
    pub(super) fn new(coordination: &'a dyn Coordination, former: &Sighting, former_problems: Problems) -> Self {
        Self {
            coordination,
            former: Arc::clone(&former.view),
            found: Found {
                view: ClusterView::clone(&former.view),
                settings: former.settings.clone(),
                problems: former_problems.clone(),
            },
            former_problems,
        }
    }

    /// Reads all entries. Controllers read reports, too.
    pub(super) fn read_all(&mut self, decides: bool) -> Result<(), CoordinationError> {
        self.found.problems.clear();
        for prefix in layout::watched(decides)? {
            if !FOLDERS.contains(&prefix.as_str()) {
                self.put(&prefix, self.coordination.read(&prefix)?)?;
                continue;
            }
            let entries = self.coordination.read_children(&prefix)?;
            for name in known(&self.former, prefix.as_str()) {
                if !entries.contains_key(&name) {
                    self.put(&prefix.join(&name)?, None)?;
                }
            }
            for (name, entry) in entries {
                self.put(&prefix.join(&name)?, Some(entry))?;
            }
        }
        Ok(())
    }

    /// Reads these entries.
    pub(super) fn read_some(&mut self, paths: &BTreeSet<EntryPath>) -> Result<(), CoordinationError> {
        paths
            .iter()
            .try_for_each(|path| self.put(path, self.coordination.read(path)?))
    }

    /// Reads the stores that were swapped by one write with those that the pass has read, and entries that could not be used before: the
    /// view never has a part of such a write. Where an entry cannot be used, the others stay as they were.
    pub(super) fn complete(&mut self) -> Result<(), CoordinationError> {
        let again: Vec<_> = self.former_problems.keys().cloned().collect();
        for path in again.iter().filter(|path| path.as_str().starts_with("stores/")) {
            self.put(path, self.coordination.read(path)?)?;
        }
        let mut read = BTreeSet::new();
        loop {
            let behind: BTreeSet<StoreName> = self.found.view.behind().into_keys().collect();
            if behind.is_empty() || behind == read {
                break;
            }
            // A new session may be with a server of the service that lags behind.
            self.coordination.sync()?;
            for name in &behind {
                let path = layout::path(&RecordPath::Store(name.clone()))?;
                self.put(&path, self.coordination.read(&path)?)?;
            }
            read = behind;
        }
        while self.hold_back()? {}
        Ok(())
    }

    /// Takes back the records that require a later state of stores whose entries cannot be used. Returns whether there are any. What is
    /// still missing then, an operator has declared true.
    fn hold_back(&mut self) -> Result<bool, CoordinationError> {
        let mut any = false;
        for (name, requiring) in self.found.view.behind() {
            let path = layout::path(&RecordPath::Store(name))?;
            if !self.found.problems.contains_key(&path) {
                continue;
            }
            for name in requiring {
                let path = layout::path(&RecordPath::Store(name.clone()))?;
                match self.former.stores.get(&name) {
                    Some(former) => drop(self.found.view.stores.insert(name, former.clone())),
                    None => drop(self.found.view.stores.remove(&name)),
                }
                self.found.problems.insert(path, INCOMPLETE.to_owned());
                any = true;
            }
        }
        Ok(any)
    }

    fn put(&mut self, path: &EntryPath, entry: Option<Entry>) -> Result<(), CoordinationError> {
        let gone = self.put_alone(path, entry)?;
        if let Some(other) = gone {
            let other = layout::path(&other)?;
            let entry = self.coordination.read(&other)?;
            self.put_alone(&other, entry)?;
        }
        Ok(())
    }

    /// Puts an entry into the view. If that takes a store or the record of a dropped one away, returns the entry that may have the
    /// store now.
    fn put_alone(&mut self, path: &EntryPath, entry: Option<Entry>) -> Result<Option<RecordPath>, CoordinationError> {
        let record = RecordPath::parse(path.as_str());
        let store_in = |view: &ClusterView| match &record {
            Some(RecordPath::Store(name)) => {
                let id = view.stores.get(name)?.record.id;
                Some((id, RecordPath::Dropped(id)))
            }
            Some(RecordPath::Dropped(id)) => {
                let name = &view.dropped.get(id)?.record.record.definition.name;
                Some((*id, RecordPath::Store(name.clone())))
            }
            _ => None,
        };
        let before = store_in(&self.found.view);
        let outcome = match path.as_str() {
            SETTINGS => parse(entry.as_ref()).map(|found| self.found.settings = found),
            _ => match &record {
                Some(RecordPath::Store(name)) if entry.is_none() && !self.is_adopted() && self.is_lost(name)? => {
                    Err(LOST.to_owned())
                }
                Some(RecordPath::Schema(key)) if entry.is_none() && !self.is_adopted() && self.is_used(*key) => {
                    Err(LOST_SCHEMA.to_owned())
                }
                Some(record) => apply(&mut self.found.view, record, entry.as_ref()),
                // An entry of another process.
                None => Ok(()),
            },
        };
        match outcome {
            Ok(()) => drop(self.found.problems.remove(path)),
            Err(reason) => {
                if self.former_problems.get(path) != Some(&reason) {
                    tracing::error!(%path, %reason, "a metadata entry cannot be used");
                }
                self.found.problems.insert(path.clone(), reason);
            }
        }
        let after = store_in(&self.found.view).map(|(id, _)| id);
        Ok(before.filter(|(id, _)| Some(*id) != after).map(|(_, other)| other))
    }

    /// Whether the view continues the former one.
    pub(super) fn check_continues(&self) -> Result<(), Discontinuity> {
        check_continues(&self.found.view, &self.former)
    }

    /// Whether an operator declared the entries of this view true, whatever the former view was.
    pub(super) fn is_adopted(&self) -> bool {
        let adoptions = |view: &ClusterView| view.cluster.as_ref().map(|cluster| cluster.adoptions);
        adoptions(&self.former).is_some_and(|former| adoptions(&self.found.view) > Some(former))
    }

    /// Whether a store in the view has lost its entry without having been dropped.
    fn is_lost(&self, name: &StoreName) -> Result<bool, CoordinationError> {
        let Some(store) = self.found.view.stores.get(name).map(|store| &store.record) else {
            return Ok(false);
        };
        let entry = self.coordination.read(&layout::path(&RecordPath::Dropped(store.id))?)?;
        let dropped: Option<Revised<DroppedStore>> = parse(entry.as_ref()).ok().flatten();
        let is_it = |dropped: Revised<DroppedStore>| dropped.record.record.created_unix_ms == store.created_unix_ms;
        Ok(!dropped.is_some_and(is_it))
    }

    /// Whether a schema in the view is one of a store that there is, and not of a former one with its number.
    fn is_used(&self, key: SchemaKey) -> bool {
        let view = &self.found.view;
        let registered = view.schemas.get(&key).map(|schema| schema.record.registered_unix_ms);
        let is_of = |store: &StoreRecord| store.id == key.store && Some(store.created_unix_ms) <= registered;
        view.stores.values().any(|store| is_of(&store.record))
    }

    pub(super) fn finish(self) -> Found {
        self.found
    }
}

/// The names in a folder that are in a view.
fn known(view: &ClusterView, folder: &str) -> Vec<String> {
    fn names<K: ToString, T>(map: &BTreeMap<K, T>) -> Vec<String> {
        map.keys().map(K::to_string).collect()
    }
    match folder {
        "nodes" => names(&view.nodes),
        "announcements" => names(&view.announcements),
        "routers" => names(&view.routers),
        "stores" => names(&view.stores),
        "dropped" => names(&view.dropped),
        "schemas" => names(&view.schemas),
        "plans" => names(&view.plans),
        "users" => names(&view.users),
        _ => names(&view.reports),
    }
}

/// Puts an entry's record into a view, or removes the record of a missing entry.
fn apply(view: &mut ClusterView, path: &RecordPath, entry: Option<&Entry>) -> Result<(), String> {
    fn plain<T>(revised: Option<Revised<T>>) -> Option<T> {
        revised.map(|revised| revised.record)
    }
    fn put<K: Ord + Clone, T>(map: &mut BTreeMap<K, T>, key: &K, found: Option<T>) {
        match found {
            Some(record) => drop(map.insert(key.clone(), record)),
            None => drop(map.remove(key)),
        }
    }
    match path {
        RecordPath::Cluster => view.cluster = plain(parse(entry)?),
        RecordPath::Routing => view.routing = parse(entry)?,
        RecordPath::Numbers => view.numbers = parse(entry)?,
        RecordPath::Node(id) => put(&mut view.nodes, id, parse(entry)?),
        RecordPath::Announcement(identity) => put(&mut view.announcements, identity, plain(parse(entry)?)),
        RecordPath::Report(id) => put(&mut view.reports, id, plain(parse(entry)?)),
        RecordPath::Router(identity) => put(&mut view.routers, identity, plain(parse(entry)?)),
        RecordPath::Store(name) => put(&mut view.stores, name, parse(entry)?),
        RecordPath::Dropped(id) => put(&mut view.dropped, id, parse(entry)?),
        RecordPath::Schema(key) => put(&mut view.schemas, key, parse(entry)?),
        RecordPath::Plan(number) => put(&mut view.plans, number, parse(entry)?),
        RecordPath::User(name) => put(&mut view.users, name, parse(entry)?),
    }
    Ok(())
}

/// The record of an entry, with its revision; `None` if there is no entry.
pub(crate) fn parse<T: DeserializeOwned>(entry: Option<&Entry>) -> Result<Option<Revised<T>>, String> {
    let read = |entry: &Entry| {
        Ok(Revised {
            record: serde_json::from_slice(&entry.bytes).map_err(|error| error.to_string())?,
            revision: entry.revision.get(),
        })
    };
    entry.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use fondaco_coordination::{EmbeddedCoordination, Revision};
    use fondaco_model::cluster::SchemaRecord;
    use fondaco_model::{StoreDefinition, ValueType};

    use super::*;

    #[test]
    fn data_of_a_store_is_explained_whichever_change_is_told_first() {
        let dir = tempfile::tempdir().unwrap();
        let coordination = EmbeddedCoordination::open(dir.path()).unwrap().session();
        let [store_path, dropped_path]: [EntryPath; 2] = ["stores/s", "dropped/5"].map(|path| path.parse().unwrap());
        let store = |id| StoreRecord::new(StoreDefinition::batch("s".parse().unwrap()), id, id.into());
        let dropped = DroppedStore {
            record: store(5),
            dropped_unix_ms: 8,
            kept_until_unix_ms: 8,
        };
        let write = |path: &EntryPath, bytes: Vec<u8>| coordination.write(path, &bytes, None).unwrap();
        let write_store = |id| write(&store_path, serde_json::to_vec(&store(id)).unwrap());
        let delete = |path: &EntryPath, revision: Revision| coordination.delete(path, revision).unwrap();
        let seen = |former: &Sighting, path: &EntryPath| {
            let mut reading = Reading::new(&*coordination, former, Problems::new());
            reading.read_some(&[path.clone()].into()).unwrap();
            let view = reading.finish().view;
            Sighting {
                view: Arc::new(view),
                ..Sighting::default()
            }
        };
        // The numbers of stores that there are, and of dropped ones.
        let numbers = |sighting: &Sighting| {
            let stores: Vec<u16> = sighting.view.stores.values().map(|store| store.record.id).collect();
            (stores, sighting.view.dropped.keys().copied().collect::<Vec<u16>>())
        };
        let created = write_store(5);
        let before = seen(&Sighting::default(), &store_path);
        delete(&store_path, created);
        let dropping = write(&dropped_path, serde_json::to_vec(&dropped).unwrap());
        let without = seen(&before, &store_path);
        assert_eq!(numbers(&without), (vec![], vec![5]));
        // Another store with its name.
        let other = write_store(6);
        assert_eq!(numbers(&seen(&before, &store_path)), (vec![6], vec![5]));
        delete(&store_path, other);
        // The dropped one is restored.
        delete(&dropped_path, dropping);
        write_store(5);
        assert_eq!(numbers(&seen(&without, &dropped_path)), (vec![5], vec![]));
    }

    #[test]
    fn stores_that_were_swapped_together_are_seen_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let coordination = EmbeddedCoordination::open(dir.path()).unwrap().session();
        let names = ["a", "b", "c"];
        let path = |name: &str| -> EntryPath { format!("stores/{name}").parse().unwrap() };
        let bytes = |store: &StoreRecord| serde_json::to_vec(store).unwrap();
        let stores =
            [1, 2, 3].map(|id| StoreRecord::new(StoreDefinition::batch(names[id - 1].parse().unwrap()), id as u16, 1));
        let mut revisions = stores.each_ref().map(|store| {
            let path = path(store.definition.name.as_str());
            coordination.write(&path, &bytes(store), None).unwrap()
        });
        let seen = |former: &(Sighting, Problems), paths: &[&str]| {
            let mut reading = Reading::new(&*coordination, &former.0, former.1.clone());
            reading
                .read_some(&paths.iter().map(|name| path(name)).collect())
                .unwrap();
            reading.complete().unwrap();
            let Found { view, problems, .. } = reading.finish();
            let view = Arc::new(view);
            (
                Sighting {
                    view,
                    ..Sighting::default()
                },
                problems,
            )
        };
        let currents = |(sighting, _): &(Sighting, Problems)| {
            let stores = sighting.view.stores.values();
            let currents = stores.map(|store| store.record.versions.current().map_or(0, |version| version.get()));
            currents.collect::<Vec<u64>>()
        };
        let before = seen(&Default::default(), &names);
        // `a` and `b` are swapped together, then `b` and `c`.
        let mut stores = stores;
        for [one, other] in [[0, 1], [1, 2]] {
            let mut swapped = [stores[one].clone(), stores[other].clone()];
            for store in &mut swapped {
                let version = store.versions.allocate();
                store.versions.make_current(version);
            }
            fondaco_model::cluster::join(&before.0.view, &mut swapped);
            for (place, store) in [one, other].into_iter().zip(swapped) {
                stores[place] = store;
            }
        }
        for (place, store) in stores.iter().enumerate() {
            let path = path(names[place]);
            revisions[place] = coordination
                .write(&path, &bytes(store), Some(revisions[place]))
                .unwrap();
        }
        assert_eq!(currents(&before), [0, 0, 0]);
        for told in names {
            assert_eq!(currents(&seen(&before, &[told])), [1, 2, 1], "told of {told}");
        }
        // An entry that cannot be used holds back all stores that were swapped with it, until it can.
        revisions[1] = coordination.write(&path("b"), b"{", Some(revisions[1])).unwrap();
        let held = seen(&before, &["a"]);
        assert_eq!(currents(&held), [0, 0, 0]);
        assert_eq!(currents(&seen(&before, &["c"])), [0, 0, 0]);
        assert_eq!(
            held.1.keys().map(EntryPath::as_str).collect::<Vec<_>>(),
            ["stores/a", "stores/b"]
        );
        coordination
            .write(&path("b"), &bytes(&stores[1]), Some(revisions[1]))
            .unwrap();
        let whole = seen(&held, &["b"]);
        assert_eq!((currents(&whole), whole.1.len()), (vec![1, 2, 1], 0));
    }

    #[test]
    fn a_schema_of_a_store_stays_without_its_entry_and_one_of_a_former_store_goes() {
        let dir = tempfile::tempdir().unwrap();
        let coordination = EmbeddedCoordination::open(dir.path()).unwrap().session();
        for (created_unix_ms, stays) in [(6, true), (8, false)] {
            let schema = SchemaRecord {
                store: 5,
                id: 1,
                value_type: ValueType::Avro,
                text: "\"int\"".to_owned(),
                message: None,
                registered_unix_ms: 7,
            };
            let store = StoreRecord::new(StoreDefinition::batch("s".parse().unwrap()), 5, created_unix_ms);
            let (name, key) = (store.definition.name.clone(), schema.key());
            let mut view = ClusterView::default();
            let revised = |record| Revised { record, revision: 1 };
            view.schemas.insert(key, revised(schema));
            view.stores.insert(
                name,
                Revised {
                    record: store,
                    revision: 1,
                },
            );
            let former = Sighting {
                view: Arc::new(view),
                ..Sighting::default()
            };
            let mut reading = Reading::new(&*coordination, &former, Problems::new());
            reading.read_some(&["schemas/5-1".parse().unwrap()].into()).unwrap();
            let found = reading.finish();
            assert_eq!(
                (found.view.schemas.contains_key(&key), found.problems.len()),
                (stays, usize::from(stays))
            );
        }
    }
}
