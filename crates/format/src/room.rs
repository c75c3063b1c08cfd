//! Limits how many files of versions a process maps.
//!
//! Linux bounds the mappings of a process (`vm.max_map_count`). At the bound, all other memory allocations fail too,
//! and the process ends. So files are refused before that: a share of the mappings is always reserved for other uses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The file with the kernel's limit of mappings per process.
const SETTING: &str = "/proc/sys/vm/max_map_count";
/// The default limit of Linux.
const MAPPINGS_MAX_DEFAULT: u64 = 65_530;
/// One mapping in this many is reserved.
const RESERVED_SHARE: u64 = 8;

static ROOM: Room = Room {
    taken: AtomicU64::new(0),
    max: AtomicU64::new(0),
};

/// The number of mappings of files of versions in this process, and their limit.
pub fn mappings() -> (u64, u64) {
    (ROOM.taken.load(Relaxed), mappings_max())
}

#[derive(Debug)]
struct Room {
    taken: AtomicU64,
    /// The limit when it was last read.
    max: AtomicU64,
}

/// The mappings of a file, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: &'static Room,
    mappings: u64,
}

impl Taken {
    /// Counts this many mappings.
    ///
    /// # Errors
    /// The number in use and the limit, if these are too many.
    pub(crate) fn new(mappings: u64) -> Result<Self, (u64, u64)> {
        ROOM.take(mappings, mappings_max)
    }
}

impl Room {
    fn take(&'static self, mappings: u64, max: impl FnOnce() -> u64) -> Result<Taken, (u64, u64)> {
        let before = self.taken.fetch_add(mappings, Relaxed);
        let taken = Taken { room: self, mappings };
        if before + mappings > self.max.load(Relaxed) {
            // The kernel's limit may have been raised since.
            self.max.store(max(), Relaxed);
        }
        let max = self.max.load(Relaxed);
        match before + mappings <= max {
            true => Ok(taken),
            false => Err((before, max)),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.mappings, Relaxed);
    }
}

fn mappings_max() -> u64 {
    let setting = std::fs::read_to_string(SETTING).ok();
    let allowed = setting.and_then(|text| text.trim().parse().ok());
    let allowed: u64 = allowed.unwrap_or(MAPPINGS_MAX_DEFAULT);
    allowed - allowed / RESERVED_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_over_the_limit_are_refused() {
        static SMALL: Room = Room {
            taken: AtomicU64::new(0),
            max: AtomicU64::new(0),
        };
        let first = SMALL.take(2, || 3).unwrap();
        assert_eq!(SMALL.take(2, || 3).unwrap_err(), (2, 3));
        let one = SMALL.take(1, || 3).unwrap();
        assert_eq!(SMALL.take(1, || 3).unwrap_err(), (3, 3));
        drop(first);
        let second = SMALL.take(2, || 3).unwrap();
        let third = SMALL.take(5, || 8).unwrap();
        drop((one, second, third));
        assert_eq!(SMALL.taken.load(Relaxed), 0);
    }

    #[test]
    fn some_mappings_are_reserved_for_other_uses() {
        let (_, max) = mappings();
        assert!(max > 0);
        let setting: u64 = std::fs::read_to_string(SETTING).unwrap().trim().parse().unwrap();
        assert!(max < setting && max > setting / 2);
    }
}
