//! What a node does first: it reads what the metadata names, deletes what it does not, and opens the
//! rest.
//!
//! Whatever a crash left is either named, and then whole or to be resumed, or not, and then a leak.

use std::collections::BTreeMap;
use std::fs;

use fondaco_format::Version;
use fondaco_model::{StoreName, VersionNumber};
use fondaco_node::{Catalog, StoreId};

use super::record::{StoreRecord, stores_path};
use super::{Opened, State, Store, StoresParts, serving};
use crate::data_dir::{DataDir, VersionDir, delete_tree};
use crate::error::ControlError;

pub(super) fn recover(parts: &StoresParts) -> Result<State, ControlError> {
    let coordination = &*parts.coordination;
    let mut state = State::default();
    for name in coordination.children(&stores_path()?)? {
        let Some((record, revision)) = StoreRecord::read(coordination, &name)? else {
            continue;
        };
        if StoreId::new(record.id).is_none() {
            return Err(ControlError::InvalidMetadata {
                entry: name,
                reason: format!("{} is not the number of a store", record.id),
            });
        }
        state.last_id = state.last_id.max(record.id);
        let store = Store {
            record,
            revision,
            open: BTreeMap::new(),
            push: None,
        };
        state.stores.insert(store.record.definition.name.clone(), store);
    }
    delete_leaks(&parts.data_dir, &state)?;
    for (name, store) in &mut state.stores {
        for version in store.record.versions.kept() {
            let opened = open(&parts.data_dir, name, version);
            if let Opened::Failed(reason) = &opened {
                let current = store.record.versions.current() == Some(version);
                tracing::error!(store = %name, %version, current, %reason, "a version cannot be opened");
            }
            store.open.insert(version, opened);
        }
    }
    let catalog = Catalog::new(state.stores.values().map(|store| serving(&store.record, &store.open)));
    parts.catalog.publish(catalog);
    Ok(state)
}

fn open(data_dir: &DataDir, name: &StoreName, version: VersionNumber) -> Opened {
    match Version::open(&data_dir.version(name, version)) {
        Ok(version) => Opened::Open(version.into()),
        Err(error) => Opened::Failed(error.to_string()),
    }
}

/// Deletes what is in the data directory and that no store names.
fn delete_leaks(data_dir: &DataDir, state: &State) -> Result<(), ControlError> {
    for entry in list(&data_dir.trash())? {
        delete_tree(&entry.path())?;
    }
    for entry in list(&data_dir.stores())? {
        let name = entry.file_name();
        let store = name.to_str().and_then(|name| state.stores.get(name));
        let Some(store) = store else {
            leak(&entry)?;
            continue;
        };
        for entry in list(&entry.path())? {
            let name = entry.file_name();
            let named = match name.to_str().and_then(VersionDir::parse) {
                Some(VersionDir::Complete(version)) => {
                    store.record.versions.contains(version) || store.record.is_pushing(version)
                }
                Some(VersionDir::Fetching(version)) => store.record.is_pushing(version),
                None => false,
            };
            if !named {
                leak(&entry)?;
            }
        }
    }
    Ok(())
}

fn leak(entry: &fs::DirEntry) -> Result<(), ControlError> {
    let path = entry.path();
    tracing::warn!(?path, "deleting what no store names");
    match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true => delete_tree(&path),
        false => fs::remove_file(&path).map_err(ControlError::io("delete", &path)),
    }
}

fn list(dir: &std::path::Path) -> Result<Vec<fs::DirEntry>, ControlError> {
    let entries = fs::read_dir(dir).map_err(ControlError::io("list", dir))?;
    entries
        .map(|entry| entry.map_err(ControlError::io("list", dir)))
        .collect()
}

impl StoreRecord {
    /// Whether a push of this version is under way.
    fn is_pushing(&self, version: VersionNumber) -> bool {
        self.push
            .as_ref()
            .is_some_and(|push| push.version == version && !push.state.is_end())
    }
}
