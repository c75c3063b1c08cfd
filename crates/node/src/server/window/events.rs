//! The later events on top of versions of hybrid stores: looked at for all keys of a window at once, before the versions.

use fondaco_stream::Found;
use smallvec::SmallVec;

use super::{Key, KeyPlace, Window};
use crate::catalog::Catalog;
use crate::server::buffers::FREE_BYTES;
use crate::server::refusal;

impl Window {
    /// Looks at them, as far as memory has them.
    #[inline]
    pub(in crate::server) fn look_at_events(&mut self, catalog: &Catalog) {
        if std::mem::take(&mut self.has_events) {
            self.look_at_layers(catalog);
        }
    }

    fn look_at_layers(&mut self, catalog: &Catalog) {
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
                    let wanted: SmallVec<[_; 1]> = keys.clone().map(|at| self.key(at).0).collect();
                    overlay.find_hot(&wanted)
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
            // A long value is read again, within the memory that there is for values.
            Found::Value(value) if value.len() as u64 > FREE_BYTES => None,
            Found::Unknown => None,
            Found::Value(value) => Some(Ok(Some(value))),
            Found::Deleted => Some(Ok(None)),
            Found::Behind if !is_held(&self.keys[at]) => return,
            Found::Behind => Some(Err(refusal::behind(catalog, self.keys[at].store).into())),
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
