//! The leading controller gives nodes their numbers, and makes the first routing table.

use std::collections::BTreeMap;

use fondaco_model::cluster::{Announcement, ClusterRecord, ClusterView, NodeMark, NodeRecord, Revised};
use fondaco_model::{Identity, Member, NodeId, PlacementError, RoutingTable, place};

use crate::change::{Change, RecordPath, Write};

/// The most nodes that get their numbers by one change.
const NUMBERED_MAX: usize = 256;

/// Numbers for announced nodes that have none, and new records for nodes that announce other facts.
///
/// A node with a record keeps its number. A node that claims a free number gets it; if two nodes claim one number, the
/// first by identity does. A node that claims the number of another gets none: it sees that, and ends.
///
/// A new node at the addresses of a node that has been absent for long counts as that node with its data directory
/// lost: it gets its number, and its data again, without an operator. The former identity is refused from then on.
///
/// All numbers are given out in one change, which also rewrites the record of numbers. So two decisions on one view, or
/// on an old one, never give two numbers to one node. The same holds for a view that has that record, but not yet all
/// the nodes that it counts.
pub(super) fn admit(view: &ClusterView, is_absent: impl Fn(NodeId) -> bool, problems: &mut Vec<String>) -> Vec<Change> {
    let known: BTreeMap<&Identity, &Revised<NodeRecord>> = {
        let nodes = view.nodes.values();
        nodes.map(|node| (&node.record.identity, node)).collect()
    };
    let mut changes = Vec::new();
    let mut given: BTreeMap<NodeId, Write> = BTreeMap::new();
    let mut unnumbered = Vec::new();
    for announcement in view.announcements.values() {
        if let Some(node) = known.get(&announcement.identity) {
            let mut record = record(node.record.id, announcement);
            record.mark = node.record.mark;
            if record != node.record {
                changes.push(Change::of([Write::over(node, record)]));
            }
            continue;
        }
        if let Some(former) = former_at(view, announcement) {
            let id = former.record.id;
            match is_absent(id) {
                true => give(&mut given, id, announcement, Some(former.revision)),
                false => problems.push(format!(
                    "a new node announces itself at {:?}, where node {id} was a moment ago: if node {id} stays away, \
                     the new node replaces it, else it must get another address",
                    announcement.resp
                )),
            }
            continue;
        }
        match announcement.id {
            Some(id) if view.nodes.contains_key(&id) => {}
            Some(id) => give(&mut given, id, announcement, None),
            None => unnumbered.push(announcement),
        }
    }
    let mut numbers = view.numbers.as_ref().map(|numbers| numbers.record).unwrap_or_default();
    for announcement in unnumbered {
        let known = view.nodes.keys().last().max(given.keys().last());
        let last = known.max(numbers.last_node.as_ref());
        let free = last.map_or(NodeId::FIRST, |last| last.next());
        give(&mut given, free, announcement, None);
    }
    if !given.is_empty() && view.nodes.len() >= numbers.nodes as usize {
        let mut writes: Vec<Write> = given.into_values().take(NUMBERED_MAX).collect();
        let new = writes.iter().filter(|write| write.expected.is_none()).count();
        numbers.nodes = (view.nodes.len() + new) as u32;
        let last = writes.iter().filter_map(|write| match write.path {
            RecordPath::Node(id) => Some(id),
            _ => None,
        });
        numbers.last_node = last.max().max(numbers.last_node);
        let revision = view.numbers.as_ref().map(|numbers| numbers.revision);
        writes.push(Write::of(revision, numbers));
        changes.push(Change::of(writes));
    }
    changes
}

/// Gives a number to a node, unless the same change gives it to another.
fn give(given: &mut BTreeMap<NodeId, Write>, id: NodeId, announcement: &Announcement, expected: Option<u64>) {
    let numbered = || Write::of(expected, record(id, announcement));
    given.entry(id).or_insert_with(numbered);
}

/// The node that is or was at the same addresses.
fn former_at<'a>(view: &'a ClusterView, announcement: &Announcement) -> Option<&'a Revised<NodeRecord>> {
    let mut nodes = view.nodes.values();
    nodes.find(|node| {
        let node = &node.record;
        node.resp == announcement.resp
            && node.http == announcement.http
            && announcement.id.is_none_or(|claimed| claimed == node.id)
    })
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
        host,
        backup,
        mysql: _,
        protocol,
    } = announcement.clone();
    NodeRecord {
        id,
        identity,
        zone,
        group,
        weight: weight.max(1),
        resp,
        http,
        host,
        backup,
        protocol,
        mark: None,
        forgotten: false,
    }
}

/// The first routing table, once enough nodes are live.
pub(super) fn first_table(cluster: &ClusterRecord, view: &ClusterView) -> Result<Option<Change>, PlacementError> {
    let live = view.nodes.values().filter(|node| view.is_live(node.record.id));
    let live = live.filter(|node| !node.record.backup && node.record.mark != Some(NodeMark::Leaving));
    let members: Vec<Member> = live.map(|node| node.record.member()).collect();
    if members.is_empty() || members.len() < cluster.nodes_initial as usize {
        return Ok(None);
    }
    let owners = place(cluster.placement, cluster.partitions, view.list_length(), &members)?;
    // A placement has one list for each partition, none of them empty, and names no node twice.
    let table = RoutingTable::first(cluster.partitions, owners).ok();
    Ok(table.map(|table| Change::of([Write::of(None, table)])))
}
