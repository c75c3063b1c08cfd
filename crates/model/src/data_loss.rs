//! Whether a node's data directory may lack acknowledged writes, judged by notes in it and elsewhere. The records
//! themselves do not show it: an older copy of them is as intact as the newest one.

/// The notes of the previous process in the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastProcess<'a> {
    /// Whether it ended in an orderly way: all its writes were on the disk then.
    pub has_ended: bool,
    /// The boot of the machine that it ran in; `None` if unknown.
    pub boot_id: Option<&'a str>,
}

impl LastProcess<'_> {
    /// Whether acknowledged writes that were not on the disk yet may be lost, given the present boot of the machine.
    /// The memory of the operating system survives a killed process, but not a reboot.
    pub fn may_lack_unsynced(self, boot_id: Option<&str>) -> bool {
        let is_other = matches!((self.boot_id, boot_id), (Some(last), Some(this)) if last != this);
        !self.has_ended && is_other
    }
}

/// The count of a data directory, in its two places. It is raised at each start, at each orderly stop, and from time to
/// time while the node takes writes: first in the directory, durably, then in the coordination service. So the
/// directory is never behind, whenever the process is killed, unless it is an older copy of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryCounts {
    /// The directory's number; `None` if it is new.
    pub directory: Option<u64>,
    /// The coordination service's number; `None` if it has none for the node.
    pub coordination: Option<u64>,
}

impl DirectoryCounts {
    /// Whether the directory is an older copy of the node's data. A new directory is known to lack everything anyway.
    pub fn is_older_copy(self) -> bool {
        matches!((self.directory, self.coordination), (Some(directory), Some(known)) if directory < known)
    }

    /// The next number for both places. If the service went back, it is raised too.
    pub fn next(self) -> u64 {
        self.directory
            .max(self.coordination)
            .map_or(1, |count| count.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unsynced_writes_are_lost_only_by_an_unclean_reboot() {
        let (here, other) = (Some("a"), Some("b"));
        for (has_ended, last, this, lacks) in [
            (true, here, other, false),
            (false, here, here, false),
            (false, here, other, true),
            (false, None, other, false),
            (false, here, None, false),
            (true, here, here, false),
        ] {
            let process = LastProcess {
                has_ended,
                boot_id: last,
            };
            assert_eq!(process.may_lack_unsynced(this), lacks, "{process:?} {this:?}");
        }
    }

    #[test]
    fn a_directory_with_a_lower_count_is_an_older_copy() {
        for (directory, coordination, is_older, next) in [
            (None, None, false, 1),
            (None, Some(7), false, 8),
            (Some(7), None, false, 8),
            (Some(7), Some(7), false, 8),
            (Some(8), Some(7), false, 9),
            (Some(6), Some(7), true, 8),
        ] {
            let counts = DirectoryCounts {
                directory,
                coordination,
            };
            assert_eq!((counts.is_older_copy(), counts.next()), (is_older, next), "{counts:?}");
        }
    }

    /// An event at a node.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Raise,
        /// It is killed between the directory and the coordination service.
        RaiseAndDie,
        /// An operator keeps a copy of the directory.
        Copy,
        /// The coordination service is restored to its state at the last copy.
        PutServiceBack,
    }

    proptest! {
        #[test]
        fn only_an_older_copy_looks_like_one(
            events in prop::collection::vec(
                prop_oneof![
                    4 => Just(Event::Raise),
                    2 => Just(Event::RaiseAndDie),
                    1 => Just(Event::Copy),
                    1 => Just(Event::PutServiceBack),
                ],
                1..40,
            ),
        ) {
            let mut counts = DirectoryCounts { directory: None, coordination: None };
            let (mut copy, mut service_copy) = (None, None);
            // Whether the count was raised in both places since the copy was made, and the service has not gone back
            // since.
            let mut is_raised = false;
            for event in events {
                prop_assert!(!counts.is_older_copy(), "{:?}", counts);
                let next = counts.next();
                match event {
                    Event::Raise => {
                        counts = DirectoryCounts { directory: Some(next), coordination: Some(next) };
                        is_raised = true;
                    }
                    Event::RaiseAndDie => counts.directory = Some(next),
                    Event::Copy => {
                        (copy, service_copy) = (counts.directory, counts.coordination);
                        is_raised = false;
                    }
                    Event::PutServiceBack => {
                        counts.coordination = service_copy;
                        is_raised = false;
                    }
                }
            }
            if copy.is_some() && is_raised {
                let put_back = DirectoryCounts { directory: copy, ..counts };
                prop_assert!(put_back.is_older_copy(), "{:?}", put_back);
            }
        }
    }
}
