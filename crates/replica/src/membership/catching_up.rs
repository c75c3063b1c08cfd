//! Whether a replica that does not hold all that an owner is to hold has enough of it to answer reads. Without I/O.
//!
//! A replica that starts without what it had acknowledged, since its disk is another one, its log was damaged, or its
//! engine keeps all in memory, would be counted by a read that finds a write nowhere, though R replicas have answered:
//! the write was on W, and this was one of them. So it answers no read that is counted until it was compared with the
//! others. With how many, follows from W: each write that it had acknowledged is on W - 1 others, and N - W + 1 of the
//! N - 1 others have one of these among them. Likewise a next owner of a partition takes the place of one that may have
//! been among the W: N - W + 1 of the N owners have one that was.
//!
//! Others count that are whole themselves: one that has lost something may have lost that very write. Where all others
//! were compared, whole or not, there is no more to be had.

use fondaco_model::NodeId;
use fondaco_model::versioned::VersionedSettings;

/// What a replica was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// All that another owner ever acknowledged.
    Whole,
    /// What it has, which may not be all.
    InPart,
}

/// Another owner of a partition, as a replica knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Whether it is there.
    pub is_live: bool,
    /// Whether it is neither there nor, by the plan under way, to hold anything any more: what only it has is given up.
    pub is_given_up: bool,
    /// What was compared with it, if anything was.
    pub compared: Option<Compared>,
}

/// Whether a replica has enough of a partition of which these are the owners, itself included if it is one. It has been
/// compared with all that are there; and, where a read is to see every write, with so many that none is missed.
pub fn has_enough(
    settings: &VersionedSettings,
    owners: &[NodeId],
    own: NodeId,
    other: impl Fn(NodeId) -> Other,
) -> bool {
    let (replicas, is_owner) = (owners.len() as u32, owners.contains(&own));
    let others = || owners.iter().filter(|&&owner| owner != own).map(|&owner| other(owner));
    let promises = !settings.sloppy && settings.reads + settings.writes > replicas;
    let needed = match (promises, is_owner) {
        // A write that was on this replica alone is nowhere else.
        (true, true) => (replicas + 1).saturating_sub(settings.writes.max(2)),
        (true, false) => (replicas + 1).saturating_sub(settings.writes).max(1),
        (false, _) => 0,
    };
    let whole = others().filter(|other| other.compared == Some(Compared::Whole));
    let is_enough =
        whole.count() as u32 >= needed || others().all(|other| other.compared.is_some() || other.is_given_up);
    // A node that never held it has it from another one.
    let has_any = is_owner || others().any(|other| other.compared.is_some());
    is_enough && has_any && others().all(|other| other.compared.is_some() || !other.is_live)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many nodes, of which sets are bits.
    fn nodes(count: u32) -> Vec<NodeId> {
        (1..=count).filter_map(NodeId::new).collect()
    }

    fn is_in(set: u32, node: NodeId) -> bool {
        set & (1 << (node.get() - 1)) != 0
    }

    /// All N, R and W up to five.
    fn all_settings() -> impl Iterator<Item = (u32, VersionedSettings)> {
        let pairs = |replicas| (1..=replicas).flat_map(move |reads| (1..=replicas).map(move |writes| (reads, writes)));
        (1..=5).flat_map(move |replicas| {
            pairs(replicas).map(move |(reads, writes)| {
                let settings = VersionedSettings::of(replicas);
                (
                    replicas,
                    VersionedSettings {
                        reads,
                        writes,
                        ..settings
                    },
                )
            })
        })
    }

    #[test]
    fn each_write_that_was_acknowledged_is_on_one_that_it_was_compared_with() {
        for (replicas, settings) in all_settings() {
            let (all, promises) = (nodes(replicas + 1), settings.reads + settings.writes > replicas);
            let owners = &all[..replicas as usize];
            let sets = || 0..1_u32 << replicas;
            // Node 1 has lost all; or another one is to own.
            for (own, others) in [
                (owners[0], (1 << replicas) - 2),
                (all[replicas as usize], (1 << replicas) - 1),
            ] {
                // It was compared with these, the latter of which had lost something, and no other is there.
                for (compared, partial) in sets().flat_map(|compared| sets().map(move |partial| (compared, partial))) {
                    if compared & !others != 0 || partial & !compared != 0 {
                        continue;
                    }
                    let has_enough = |live: u32| {
                        has_enough(&settings, owners, own, |node| Other {
                            is_live: is_in(live, node),
                            is_given_up: false,
                            compared: is_in(compared, node).then_some(match is_in(partial, node) {
                                true => Compared::InPart,
                                false => Compared::Whole,
                            }),
                        })
                    };
                    let is_owner = own == owners[0];
                    // Of a write on it alone there is nothing to be found.
                    let written = sets().filter(|set| set.count_ones() == settings.writes && set & others != 0);
                    let written = written.filter(|set| !is_owner || set & 1 == 1);
                    let finds_all = written
                        .map(|set| set & others)
                        .all(|set| set & compared & !partial != 0)
                        && (settings.writes > 1 || (compared & !partial) == others);
                    let is_enough = match promises {
                        true => finds_all || compared == others,
                        false => is_owner || compared != 0,
                    };
                    let is_any = is_owner || compared != 0;
                    assert_eq!(
                        has_enough(compared),
                        is_enough && is_any,
                        "{settings:?}: {own} of {owners:?} compared with {compared:b}, of which {partial:b} in part"
                    );
                    // A live node is not left out.
                    assert_eq!(has_enough(others), compared == others && is_any);
                }
            }
        }
    }

    #[test]
    fn what_only_they_have_who_are_given_up_is_not_waited_for() {
        let (settings, owners) = (VersionedSettings::of(3), nodes(3));
        let other = |is_given_up: bool, compared: Compared| {
            move |node: NodeId| Other {
                is_live: node.get() != 3,
                is_given_up: node.get() == 3 && is_given_up,
                compared: (node.get() != 3).then_some(compared),
            }
        };
        let next = NodeId::new(4).unwrap_or(NodeId::FIRST);
        for own in [owners[0], next] {
            assert!(!has_enough(&settings, &owners, own, other(false, Compared::InPart)));
            assert!(has_enough(&settings, &owners, own, other(true, Compared::InPart)));
        }
        // Two of three are enough for a next owner; one of two is not for a node that has lost what it held.
        assert!(has_enough(&settings, &owners, next, other(false, Compared::Whole)));
        assert!(!has_enough(
            &settings,
            &owners,
            owners[0],
            other(false, Compared::Whole)
        ));
        // But where no other node is left, nothing is to be had.
        let gone = |_| Other {
            is_live: false,
            is_given_up: true,
            compared: None,
        };
        assert!(!has_enough(&settings, &owners, next, gone));
    }

    #[test]
    fn who_takes_hints_for_copies_promises_nothing() {
        let owners = nodes(3);
        let mut settings = VersionedSettings::of(3);
        settings.sloppy = true;
        let away = |_| Other {
            is_live: false,
            is_given_up: false,
            compared: None,
        };
        assert!(has_enough(&settings, &owners, owners[0], away));
    }
}
