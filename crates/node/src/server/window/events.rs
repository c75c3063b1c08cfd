//! The later events on top of versions of hybrid stores: looked up for all keys of a window at once, before the
//! versions.

use fondaco_catalog::Catalog;
use fondaco_resp::command::CommandId;
use fondaco_stream::Found;
use smallvec::SmallVec;

use super::{Key, KeyPlace, Window};
use crate::server::buffers::FREE_BYTES;
use crate::server::refusal;

impl Window {
    /// Looks the window's keys up in overlays, as far as those are in memory.
    #[inline]
    pub(in crate::server) fn find_events(&mut self, catalog: &Catalog) {
        if std::mem::take(&mut self.has_events) {
            self.search_overlays(catalog);
        }
    }

    fn search_overlays(&mut self, catalog: &Catalog) {
        let mut start = 0;
        while let Some(first) = self.keys.get(start) {
            let version = version_of(first);
            let run = self.keys[start..]
                .iter()
                .take_while(|key| version_of(key) == version)
                .count();
            let keys = start..start + run;
            if let Some(version) = version
                && let Some(overlay) = catalog.overlay(version)
            {
                let found = {
                    let wanted: SmallVec<[_; 32]> = keys.clone().map(|at| self.key(at).0).collect();
                    overlay.find_hot(&wanted, FREE_BYTES as usize)
                };
                for (at, found) in keys.zip(found) {
                    self.note_events(at, version, found, catalog);
                }
            }
            start += run;
        }
    }

    fn note_events(&mut self, at: usize, version: u16, found: Found, catalog: &Catalog) {
        let answer = match found {
            Found::Nothing => return,
            // It is on the disk; or long, and read again within the memory that there is for values.
            Found::Unknown => None,
            Found::Value(value) => Some(Ok(Some(value))),
            Found::Deleted => Some(Ok(None)),
            Found::Behind if !is_held(&self.keys[at]) => return,
            Found::Behind if self.is_pinned(at) => Some(Err(refusal::behind(catalog, self.keys[at].store).into())),
            // It has ceased to answer a moment ago.
            Found::Behind => {
                self.keys[at].place = KeyPlace::Nodes;
                self.remote += 1;
                return;
            }
        };
        self.keys[at].place = match answer {
            Some(answer) => {
                self.known.push(answer);
                KeyPlace::Known(self.known.len() as u32 - 1)
            }
            None => {
                self.cold_events += 1;
                KeyPlace::Events(version)
            }
        };
    }

    /// Whether the request of the key at a place names the version.
    fn is_pinned(&self, at: usize) -> bool {
        let request = self.requests.iter().find(|request| at < request.keys_end as usize);
        request.is_some_and(|request| request.command == CommandId::FondacoRead)
    }
}

fn version_of(key: &Key) -> Option<u16> {
    match key.place {
        KeyPlace::Version { version, .. } => Some(version),
        _ => None,
    }
}

/// Whether the key's version here has the key's partition: if not, the version itself says so.
fn is_held(key: &Key) -> bool {
    matches!(&key.place, KeyPlace::Version { probe, .. } if probe.is_held())
}
