//! Keys of hybrid stores whose later events, if they have any, are on the disk.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_stream::Found;

use super::refusal;
use super::window::{KeyPlace, Window};
use crate::catalog::Catalog;
use crate::forward::{Answered, Answers, StoreVersion, ValueAnswer};

/// Reads keys of a window on blocking threads: in the later events, and in the version where there are none. One answer for each key, in
/// order.
pub(super) async fn read(window: &Window, catalog: &Catalog, keys: &[usize]) -> Answers {
    let mut each = Vec::with_capacity(keys.len());
    let reads: Vec<_> = keys.iter().map(|&at| begin(window, catalog, at)).collect();
    for (read, &at) in reads.into_iter().zip(keys) {
        let value = match read {
            Some(read) => read
                .await
                .unwrap_or_else(|_| Err("ERR the node is shutting down".into())),
            None => Err("ERR the key is in no version".into()),
        };
        let source = value
            .is_ok()
            .then(|| StoreVersion::current(catalog, window.key(at).1))
            .flatten();
        each.push(Answered { value, source });
    }
    Answers {
        each,
        ..Answers::default()
    }
}

fn begin(window: &Window, catalog: &Catalog, at: usize) -> Option<tokio::task::JoinHandle<ValueAnswer>> {
    let KeyPlace::Events(version) = window.place(at) else {
        return None;
    };
    let (key, store) = window.key(at);
    let overlay = Arc::clone(catalog.overlay(version)?);
    let version = Arc::clone(catalog.version(version));
    let (key, behind) = (key.to_vec(), refusal::behind(catalog, store));
    Some(tokio::task::spawn_blocking(move || match overlay.find(&key) {
        Ok(Found::Value(value)) => Ok(Some(value)),
        Ok(Found::Deleted) => Ok(None),
        Ok(Found::Nothing) => match version.get_owned(&key) {
            Ok(value) => Ok(value.map(Bytes::from)),
            Err(error) => Err(refusal::failure(&error).into()),
        },
        Ok(Found::Behind | Found::Unknown) => Err(behind.into()),
        Err(error) => Err(format!("CORRUPT {error}").into()),
    }))
}
