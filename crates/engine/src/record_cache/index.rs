//! Where the entries of a shard stand, by the hashes of their keys: a table with open addressing and linear probing, in
//! which what is deleted leaves no mark [Knuth, The Art of Computer Programming 3, 6.4, Algorithm R]. A place takes 8 bytes,
//! so that one line of memory shows several, and which one will be looked at is known before it is.

use crate::prefetch::prefetch;

/// The hash of a key, as much of it as tells the entries of one shard apart.
pub(super) type Hash = u32;

/// A place in the list of entries.
pub(super) type Slot = u32;

/// As a slot: there is nothing here.
const VACANT: Slot = Slot::MAX;

const PLACES_MIN: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Place {
    hash: Hash,
    slot: Slot,
}

/// Slots by hashes.
#[derive(Debug)]
pub(super) struct Index {
    /// A power of two.
    places: Vec<Place>,
    len: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            places: vacant(PLACES_MIN),
            len: 0,
        }
    }

    /// How many slots it has room for.
    pub(super) fn room(&self) -> usize {
        // Linear probing takes 2.5 looks for what is there, and 8.5 for what is not, when three quarters are taken.
        self.places.len() / 4 * 3
    }

    /// Begins to load what looking for a hash looks at.
    pub(super) fn prefetch(&self, hash: Hash) {
        prefetch(&self.places[self.home(hash)]);
    }

    /// The slots that have a hash.
    pub(super) fn slots(&self, hash: Hash) -> impl Iterator<Item = Slot> {
        self.run(self.home(hash))
            .map(|at| self.places[at])
            .take_while(|place| place.slot != VACANT)
            .filter(move |place| place.hash == hash)
            .map(|place| place.slot)
    }

    /// Adds a slot that is not there yet.
    pub(super) fn insert(&mut self, hash: Hash, slot: Slot) {
        if self.len == self.room() {
            let larger = vacant(self.places.len() * 2);
            let smaller = std::mem::replace(&mut self.places, larger);
            for place in smaller.into_iter().filter(|place| place.slot != VACANT) {
                self.put(place);
            }
        }
        self.put(Place { hash, slot });
        self.len += 1;
    }

    /// Takes a slot away that is there.
    pub(super) fn remove(&mut self, hash: Hash, slot: Slot) {
        let Some(mut hole) = self.run(self.home(hash)).find(|at| self.places[*at].slot == slot) else {
            return;
        };
        // What stands behind the hole may stand where it does only as others stood before it: it moves up.
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask();
            let place = self.places[at];
            if place.slot == VACANT {
                break;
            }
            let from_home = at.wrapping_sub(self.home(place.hash)) & self.mask();
            let from_hole = at.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole].slot = VACANT;
        self.len -= 1;
    }

    fn put(&mut self, place: Place) {
        let vacant = self
            .run(self.home(place.hash))
            .find(|at| self.places[*at].slot == VACANT);
        if let Some(at) = vacant {
            self.places[at] = place;
        }
    }

    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    fn home(&self, hash: Hash) -> usize {
        hash as usize & self.mask()
    }

    /// All places from one on, round and round.
    fn run(&self, from: usize) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask();
        (from..=from + mask).map(move |at| at & mask)
    }
}

fn vacant(places: usize) -> Vec<Place> {
    vec![Place { hash: 0, slot: VACANT }; places]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_was_put_in_and_not_taken_out(steps in prop::collection::vec((any::<bool>(), 0..200_u32), 0..500)) {
            // Runs of many hashes, across the end, and many of one hash.
            let hash_of = |slot: Slot| (slot / 7).wrapping_mul(3).wrapping_sub(20);
            let mut index = Index::new();
            let mut expected = BTreeSet::new();
            for (is_put, slot) in steps {
                match is_put {
                    true if expected.insert(slot) => index.insert(hash_of(slot), slot),
                    false if expected.remove(&slot) => index.remove(hash_of(slot), slot),
                    _ => {}
                }
            }
            for slot in 0..200 {
                let is_there = index.slots(hash_of(slot)).any(|other| other == slot);
                prop_assert_eq!(is_there, expected.contains(&slot), "slot {}", slot);
            }
            prop_assert_eq!(index.len, expected.len());
        }
    }
}
