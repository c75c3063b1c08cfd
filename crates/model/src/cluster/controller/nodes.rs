//! The leading controller gives nodes their numbers, and makes the first routing table.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::change::{Change, Record, RecordPath};
use crate::cluster::record::{Announcement, ClusterRecord, NodeRecord};
use crate::cluster::view::{ClusterView, Revised};
use crate::node::{Identity, NodeId};
use crate::placement::{Member, PlacementError, place};
use crate::routing::RoutingTable;

/// Numbers for those who have announced themselves and have none, and new facts of those who have.
///
/// Who has a record keeps its number. Who claims a number that nobody has gets it; if two claim one,
/// the first by identity does. Who claims the number of another gets none: it sees that, and ends.
///
/// A node that is new and stands where a node stood that has been absent for long, at the same
/// addresses, is taken for that node, with its data directory lost: it gets the number, and the data
/// again, without an operator. The former identity is refused from then on.
pub(super) fn admit(view: &ClusterView, is_absent: impl Fn(NodeId) -> bool, problems: &mut Vec<String>) -> Vec<Change> {
    let known: BTreeMap<&Identity, NodeId> = {
        let nodes = view.nodes.iter().rev();
        nodes.map(|(&id, node)| (&node.record.identity, id)).collect()
    };
    let mut changes = Vec::new();
    let mut given: BTreeMap<NodeId, &Announcement> = BTreeMap::new();
    let mut unnumbered = Vec::new();
    let mut replaced = BTreeSet::new();
    for announcement in view.announcements.values() {
        if let Some(id) = known.get(&announcement.identity) {
            let node = &view.nodes[id];
            let record = record(*id, announcement);
            if record != node.record {
                changes.push(write(record, Some(node.revision)));
            }
            continue;
        }
        if let Some(former) = former_at(view, announcement) {
            let id = former.record.id;
            if !is_absent(id) {
                problems.push(format!(
                    "a new node announces itself at {:?}, where node {id} was a moment ago: if that one stays away, \
                     it is taken for that one, else it must get another address",
                    announcement.resp
                ));
            } else if replaced.insert(id) {
                changes.push(write(record(id, announcement), Some(former.revision)));
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

/// The node that stands, or stood, where this one stands.
fn former_at<'a>(view: &'a ClusterView, announcement: &Announcement) -> Option<&'a Revised<NodeRecord>> {
    let mut nodes = view.nodes.values();
    nodes.find(|node| {
        let node = &node.record;
        node.resp == announcement.resp
            && node.http == announcement.http
            && announcement.id.is_none_or(|claimed| claimed == node.id)
    })
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
