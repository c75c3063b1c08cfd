//! The positions of the keys of a command among its arguments.
//!
//! Sufficient to route a request and to check rights on stores without knowing what the command does.

use super::{CommandSpec, KeyAccess};

/// A run of keys among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// How the command accesses them.
    pub access: KeyAccess,
    /// The argument at which the run begins; 0 is the command's name.
    pub first: i32,
    /// The last key: relative to the first one, or if negative, counted from the end.
    pub last: i32,
    /// The distance between two keys.
    pub step: i32,
}

impl KeySpec {
    /// One key, at `first`.
    pub(super) const fn one(first: i32, access: KeyAccess) -> Self {
        Self {
            access,
            first,
            last: 0,
            step: 1,
        }
    }

    /// Keys from the first argument to the last, every `step`-th.
    pub(super) const fn every(step: i32, access: KeyAccess) -> Self {
        Self {
            access,
            first: 1,
            last: -1,
            step,
        }
    }
}

impl CommandSpec {
    /// The indexes of the keys in a request of `argument_count` arguments, including all names. The first key of a pair
    /// is included even if the request ends before its value.
    pub fn key_places(&self, argument_count: usize) -> impl Iterator<Item = usize> + use<> {
        let count = i32::try_from(argument_count).unwrap_or(i32::MAX);
        self.keys.iter().flat_map(move |keys| {
            let last = if keys.last < 0 {
                count.saturating_add(keys.last)
            } else {
                keys.first.saturating_add(keys.last).min(count - 1)
            };
            (keys.first..=last)
                .step_by(keys.step.max(1) as usize)
                .map(|place| place as usize)
        })
    }

    /// First key, last key and step, in the format that predates key specifications. The last key is negative if it is
    /// counted from the end; all are 0 if there are no keys.
    pub fn key_range(&self) -> (i32, i32, i32) {
        match self.keys {
            [] => (0, 0, 0),
            [keys] if keys.last < 0 => (keys.first, keys.last, keys.step),
            keys => {
                let first = keys.iter().map(|keys| keys.first).min().unwrap_or(0);
                let last = keys.iter().map(|keys| keys.first + keys.last).max();
                (first, last.unwrap_or(0), keys[0].step)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::command::find;

    fn places(name: &str, argument_count: usize) -> Vec<usize> {
        find(name.as_bytes()).unwrap().key_places(argument_count).collect()
    }

    #[test]
    fn keys_are_at_the_places_of_the_command() {
        assert_eq!(places("get", 2), [1]);
        assert_eq!(places("mget", 4), [1, 2, 3]);
        assert_eq!(places("mset", 5), [1, 3]);
        assert_eq!(places("mset", 4), [1, 3]);
        assert_eq!(places("rename", 3), [1, 2]);
        assert_eq!(places("ping", 2), [0; 0]);
        assert_eq!(places("getrange", 4), [1]);
    }

    #[test]
    fn no_key_is_past_the_end_of_a_request() {
        for spec in crate::command::all() {
            for argument_count in 0..9 {
                assert!(spec.key_places(argument_count).all(|place| place < argument_count));
            }
        }
    }
}
