//! Keys of hybrid stores whose later events, if they have any, are on the disk.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::Catalog;
use fondaco_stream::Found;

use super::refusal;
use super::window::{KeyPlace, Window};
use crate::forward::{Answered, Answers, Forwarder, ValueAnswer};

/// How many keys are read at a time.
const AT_ONCE: usize = 8;

/// Reads keys of a window on blocking threads: in the later events, and in the version where there are none. One answer for each key, in
/// order. Their values count as those of other nodes.
pub(super) async fn read(forwarder: &Forwarder, window: &Window, catalog: &Catalog, keys: &[usize]) -> Answers {
    let mut each = Vec::with_capacity(keys.len());
    let mut room = forwarder.value_room();
    for keys in keys.chunks(AT_ONCE) {
        let reads: Vec<_> = keys.iter().map(|&at| begin(window, catalog, at)).collect();
        for (read, &at) in reads.into_iter().zip(keys) {
            let read = match read {
                Some(read) => {
                    let read = match window.steered().until {
                        Some(until) => tokio::time::timeout_at(until.into(), read).await,
                        None => Ok(read.await),
                    };
                    match read {
                        Ok(read) => read.unwrap_or_else(|_| Err("ERR the node is shutting down".into())),
                        Err(_) => Err("TIMEOUT the disk took longer than the deadline".into()),
                    }
                }
                None => Err("ERR the key is in no version".into()),
            };
            let value = read.and_then(|value| {
                let bytes = value.as_ref().map_or(0, Bytes::len);
                let taken = room.take(bytes).map_err(|bytes_max| refusal::no_room(bytes_max).into());
                taken.map(|()| value)
            });
            let source = value.is_ok().then(|| window.source(at, catalog));
            each.push(Answered {
                value,
                source: source.flatten(),
            });
        }
    }
    Answers { each, room }
}

fn begin(window: &Window, catalog: &Catalog, at: usize) -> Option<tokio::task::JoinHandle<ValueAnswer>> {
    let KeyPlace::Events(version) = window.place(at) else {
        return None;
    };
    let (key, store) = window.key(at);
    find(catalog, store, version, key)
}

/// Reads a key on a blocking thread: in the later events of an open version of a hybrid store, and in the version if the key has no later event.
pub(super) fn find(
    catalog: &Catalog,
    store: u16,
    version: u16,
    key: &[u8],
) -> Option<tokio::task::JoinHandle<ValueAnswer>> {
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
