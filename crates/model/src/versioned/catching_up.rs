//! Decides whether a replica that lost data, or is about to become an owner, has enough to answer reads. Without I/O.
//!
//! A replica may start without writes that it had acknowledged, because its disk is a new one, its log was damaged, or
//! its engine keeps all data in memory. If reads counted it, a read could get R replies and still miss a write: the
//! write was on W replicas, and this was one of them. So it answers no counted read until it was compared with the
//! others. The number follows from W: each write that it had acknowledged is on W - 1 others, so N - W + 1 of the N - 1
//! others include one of these. Likewise the next owner of a partition replaces an owner that may have been one of the
//! W: N - W + 1 of the N owners include one of them.
//!
//! Only others that lack nothing themselves count: one that has lost data may have lost that very write. If all others
//! were compared, complete or not, nothing more can be restored.

use super::settings::VersionedSettings;
use crate::node::NodeId;

/// How complete a comparison was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// The other owner had everything that it ever acknowledged.
    Whole,
    /// The other owner may lack some of it.
    InPart,
}

/// Another owner of a partition, as a replica knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Whether it is live.
    pub is_live: bool,
    /// Whether it is absent and holds nothing after the plan in progress: data that only it has is given up.
    pub is_given_up: bool,
    /// The most complete comparison with it, if there was one.
    pub compared: Option<Compared>,
}

/// Whether a replica has enough of a partition with these owners, which may include itself. It must be compared with
/// all that are live and, if reads must see every write, with enough to miss none.
pub fn has_enough(
    settings: &VersionedSettings,
    owners: &[NodeId],
    own: NodeId,
    other: impl Fn(NodeId) -> Other,
) -> bool {
    let (replicas, is_owner) = (owners.len() as u32, owners.contains(&own));
    let needed = match (promises(settings, replicas), is_owner) {
        // A write that was only on this replica is nowhere else.
        (true, true) => (replicas + 1).saturating_sub(settings.writes.max(2)),
        (true, false) => (replicas + 1).saturating_sub(settings.writes).max(1),
        (false, _) => 0,
    };
    is_compared_with(needed, owners, own, other)
}

/// Whether an owner that has lost nothing has got the writes of a partition that it lacked, as far as reads depend on them: before the number of
/// replicas becomes lower, since fewer owners are read then. A write that it lacks is on W of the N - 1 others, and N - W of these
/// include one of them.
pub fn has_all(settings: &VersionedSettings, owners: &[NodeId], own: NodeId, other: impl Fn(NodeId) -> Other) -> bool {
    let replicas = owners.len() as u32;
    let needed = match promises(settings, replicas) {
        true => replicas.saturating_sub(settings.writes),
        false => 0,
    };
    is_compared_with(needed, owners, own, other)
}

/// Whether reads must see every acknowledged write.
fn promises(settings: &VersionedSettings, replicas: u32) -> bool {
    !settings.sloppy && settings.reads + settings.writes > replicas
}

/// Whether a replica was compared with at least `needed` others that lack nothing, and with all that are live.
fn is_compared_with(needed: u32, owners: &[NodeId], own: NodeId, other: impl Fn(NodeId) -> Other) -> bool {
    let is_owner = owners.contains(&own);
    let others = || owners.iter().filter(|&&owner| owner != own).map(|&owner| other(owner));
    let whole = others().filter(|other| other.compared == Some(Compared::Whole));
    let is_enough =
        whole.count() as u32 >= needed || others().all(|other| other.compared.is_some() || other.is_given_up);
    // A node that never held it must have it from another one.
    let has_any = is_owner || others().any(|other| other.compared.is_some());
    is_enough && has_any && others().all(|other| other.compared.is_some() || !other.is_live)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` nodes; a set of them is a bit mask.
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
    fn every_acknowledged_write_is_on_a_compared_node() {
        for (replicas, settings) in all_settings() {
            let (all, promises) = (nodes(replicas + 1), settings.reads + settings.writes > replicas);
            let owners = &all[..replicas as usize];
            let sets = || 0..1_u32 << replicas;
            // Either node 1 has lost everything, or another node is to become an owner.
            for (own, others) in [
                (owners[0], (1 << replicas) - 2),
                (all[replicas as usize], (1 << replicas) - 1),
            ] {
                // It was compared with `compared`, and those in `partial` had lost data; no other node is live.
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
                    // A write that was only on this node cannot be found.
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
                        "{settings:?}: {own} of {owners:?} compared with {compared:b}, with {partial:b} of them in part"
                    );
                    // A live node must not be left out.
                    assert_eq!(has_enough(others), compared == others && is_any);
                }
            }
        }
    }

    #[test]
    fn nodes_that_are_given_up_are_not_waited_for() {
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
        // Two of three are enough for a next owner; one of two is not enough for a node that has lost data.
        assert!(has_enough(&settings, &owners, next, other(false, Compared::Whole)));
        assert!(!has_enough(
            &settings,
            &owners,
            owners[0],
            other(false, Compared::Whole)
        ));
        // But if no other node is left, nothing can be restored.
        let gone = |_| Other {
            is_live: false,
            is_given_up: true,
            compared: None,
        };
        assert!(!has_enough(&settings, &owners, next, gone));
    }

    #[test]
    fn sloppy_stores_promise_nothing() {
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

    #[test]
    fn an_owner_that_remains_is_compared_with_enough_to_miss_no_write() {
        let settings = VersionedSettings::of(3);
        let owners = nodes(3);
        let others = |live: u32, compared: u32| {
            let is_in = |set: u32, node| is_in(set, node);
            let other = move |node| Other {
                is_live: is_in(live, node),
                is_given_up: false,
                compared: is_in(compared, node).then_some(Compared::Whole),
            };
            has_all(&settings, &owners, owners[0], other)
        };
        let (second, third) = (0b010, 0b100);
        assert!(!others(0, 0), "a write may be on both others");
        assert!(others(second, second), "one of two of three has it");
        assert!(!others(second | third, second), "one that is there is asked");
        assert!(others(second | third, second | third));
    }
}
