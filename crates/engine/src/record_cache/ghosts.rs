//! Hashes of what was evicted lately. It knows about as many as are asked of it, forgets some sooner, and takes no more than
//! a line of memory to be asked.

use super::index::Hash;

#[derive(Debug, Clone, Copy, Default)]
struct Ghost {
    hash: Hash,
    /// When it went, by the count of evictions; 0 if there is none.
    at: u32,
}

/// What went, and when: of all hashes that have one place, the last.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    /// A power of two, or none yet.
    places: Vec<Ghost>,
    /// How many went so far, about: one for each, from 1 on, round and round.
    count: u32,
}

impl Ghosts {
    /// Notes that something went, if so many things are to be known.
    pub(super) fn add(&mut self, hash: Hash, known_max: usize) {
        let places = known_max.next_power_of_two();
        if self.places.len() < places {
            // What it knew is known less well than what comes now.
            self.places = vec![Ghost::default(); places];
        }
        self.count = self.count.wrapping_add(1).max(1);
        let at = self.count;
        if let Some(place) = self.place(hash) {
            self.places[place] = Ghost { hash, at };
        }
    }

    /// Whether something of this hash is among as many as went last; it is not any more.
    pub(super) fn take(&mut self, hash: Hash, last: usize) -> bool {
        let Some(place) = self.place(hash) else { return false };
        let ghost = self.places[place];
        let is_it = ghost.at != 0 && ghost.hash == hash && self.count.wrapping_sub(ghost.at) as usize <= last;
        if is_it {
            self.places[place] = Ghost::default();
        }
        is_it
    }

    fn place(&self, hash: Hash) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        Some(hash as usize & mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_what_went_last_and_once() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.take(1, 100));
        (1..=100).for_each(|hash| ghosts.add(hash, 128));
        assert!(!ghosts.take(40, 50), "too long ago");
        assert!(ghosts.take(60, 50));
        assert!(!ghosts.take(60, 50), "taken");
        assert!(!ghosts.take(101, 50));
        ghosts.add(60 + 128, 128);
        assert!(!ghosts.take(60, 50), "another one of that place");
        assert!(ghosts.take(60 + 128, 50));
    }
}
