//! Whether a replica that has lost what it held has enough of it again to answer reads. Without I/O, for those who
//! simulate replicas too.
//!
//! A replica that starts without what it had acknowledged, since its disk is another one, its log was damaged, or its
//! engine keeps all in memory, would be counted by a read that finds a write nowhere, though R replicas have answered:
//! the write was on W, and this was one of them. So it answers no read that is counted until it was compared with the
//! others. With how many, follows from W: each write that it had acknowledged is on W - 1 others, and N - W + 1 of the
//! N - 1 others have one of these among them.

use fondaco_model::NodeId;
use fondaco_model::versioned::VersionedSettings;

/// Whether a replica has caught up with the others of a partition, of which these are the owners, itself included. It
/// has been compared with all that are there; and, where a read is to see every write, with so many that none is
/// missed.
pub fn has_caught_up(
    settings: &VersionedSettings,
    owners: &[NodeId],
    own: NodeId,
    is_live: impl Fn(NodeId) -> bool,
    is_compared: impl Fn(NodeId) -> bool,
) -> bool {
    let replicas = owners.len() as u32;
    let others = || owners.iter().copied().filter(|&owner| owner != own);
    let promises = !settings.sloppy && settings.reads + settings.writes > replicas;
    let needed = match promises {
        // A write that was on this replica alone is nowhere else.
        true => (replicas + 1).saturating_sub(settings.writes.max(2)),
        false => 0,
    };
    let compared = others().filter(|&other| is_compared(other)).count() as u32;
    compared >= needed && others().all(|other| is_compared(other) || !is_live(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_that_was_acknowledged_is_on_one_that_it_was_compared_with() {
        let nodes: Vec<NodeId> = (1..=5).filter_map(NodeId::new).collect();
        for replicas in 1..=5_u32 {
            let owners = &nodes[..replicas as usize];
            let sets = || 0..1_u32 << replicas;
            let of = |set: u32, node: NodeId| set & (1 << (node.get() - 1)) != 0;
            for (reads, writes) in (1..=replicas).flat_map(|reads| (1..=replicas).map(move |writes| (reads, writes))) {
                let mut settings = VersionedSettings::of(replicas);
                (settings.reads, settings.writes) = (reads, writes);
                // Node 1 has lost all. It was compared with these, and nobody else is there.
                for compared in sets().filter(|set| set & 1 == 0) {
                    let caught_up = |live: u32| {
                        has_caught_up(
                            &settings,
                            owners,
                            owners[0],
                            |node| of(live, node),
                            |node| of(compared, node),
                        )
                    };
                    let missed = sets().filter(|set| set & 1 == 1 && set.count_ones() == writes);
                    let mut missed = missed.filter(|written| written.count_ones() > 1 && written & compared == 0);
                    let is_enough = missed.next().is_none()
                        && (replicas == 1 || writes > 1 || compared.count_ones() == replicas - 1);
                    let promises = reads + writes > replicas;
                    assert_eq!(
                        caught_up(compared),
                        is_enough || !promises,
                        "N {replicas}, R {reads}, W {writes}, compared with {compared:b}"
                    );
                    // Who is there is not left out.
                    let others = (1 << replicas) - 2;
                    assert_eq!(caught_up(others), compared == others);
                }
            }
        }
    }

    #[test]
    fn who_takes_hints_for_copies_promises_nothing() {
        let owners: Vec<NodeId> = (1..=3).filter_map(NodeId::new).collect();
        let mut settings = VersionedSettings::of(3);
        settings.sloppy = true;
        assert!(has_caught_up(&settings, &owners, owners[0], |_| false, |_| false));
    }
}
