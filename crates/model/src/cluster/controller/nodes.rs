//! The leading controller gives nodes their numbers, and makes the first routing table.

use std::collections::BTreeMap;

use crate::cluster::change::{Change, Record, RecordPath};
use crate::cluster::record::{Announcement, ClusterRecord, NodeRecord};
use crate::cluster::view::ClusterView;
use crate::node::{Identity, NodeId};
use crate::placement::{Member, PlacementError, place};
use crate::routing::RoutingTable;

/// Numbers for those who have announced themselves and have none, and new facts of those who have.
///
/// Who has a record keeps its number. Who claims a number that nobody has gets it; if two claim one,
/// the first by identity does. Who claims the number of another gets none: it sees that, and ends.
pub(super) fn admit(view: &ClusterView) -> Vec<Change> {
    let known: BTreeMap<&Identity, NodeId> = {
        let nodes = view.nodes.iter().rev();
        nodes.map(|(&id, node)| (&node.record.identity, id)).collect()
    };
    let mut changes = Vec::new();
    let mut given: BTreeMap<NodeId, &Announcement> = BTreeMap::new();
    let mut unnumbered = Vec::new();
    for announcement in view.announcements.values() {
        if let Some(id) = known.get(&announcement.identity) {
            let node = &view.nodes[id];
            let record = record(*id, announcement);
            if record != node.record {
                changes.push(write(record, Some(node.revision)));
            }
            continue;
        }
        match announcement.id {
            Some(id) if view.nodes.contains_key(&id) => {}
            Some(id) => {
                given.entry(id).or_insert(announcement);
            }
            None => unnumbered.push(announcement),
        }
    }
    let taken = view.nodes.keys().chain(given.keys()).max();
    let mut free = taken.map_or(NodeId::FIRST, |last| last.next());
    for announcement in unnumbered {
        given.insert(free, announcement);
        free = free.next();
    }
    let new = given.into_iter().map(|(id, announcement)| record(id, announcement));
    changes.extend(new.map(|record| write(record, None)));
    changes
}

fn write(record: NodeRecord, expected: Option<u64>) -> Change {
    Change::of(RecordPath::Node(record.id), expected, Record::Node(record))
}

fn record(id: NodeId, announcement: &Announcement) -> NodeRecord {
    let Announcement {
        identity,
        id: _,
        zone,
        group,
        weight,
        resp,
        http,
    } = announcement.clone();
    NodeRecord {
        id,
        identity,
        zone,
        group,
        weight: weight.max(1),
        resp,
        http,
    }
}

/// The first routing table, once enough nodes are there.
pub(super) fn first_table(cluster: &ClusterRecord, view: &ClusterView) -> Result<Option<Change>, PlacementError> {
    let live = view.nodes.values().filter(|node| view.is_live(node.record.id));
    let members: Vec<Member> = live.map(|node| node.record.member()).collect();
    if members.is_empty() || members.len() < cluster.nodes_initial as usize {
        return Ok(None);
    }
    let owners = place(cluster.placement, cluster.partitions, cluster.replicas, &members)?;
    // A placement has one list for each partition, none of them empty, and names no node twice.
    let table = RoutingTable::first(cluster.partitions, owners).ok();
    Ok(table.map(|table| Change::of(RecordPath::Routing, None, Record::Routing(table))))
}

impl NodeRecord {
    /// The node as placements see it.
    pub(in crate::cluster) fn member(&self) -> Member {
        Member {
            id: self.id,
            zone: self.zone.clone(),
            group: self.group.clone(),
            weight: self.weight,
        }
    }
}
