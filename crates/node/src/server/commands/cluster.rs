//! `CLUSTER` and its like: the cluster as clients of Redis Cluster want to see it.
//!
//! Each partition is a range of slots, and its owners that are there are shown as a master and its
//! replicas, in the order of preference; which of them is asked makes no difference. A router, and a node
//! without a cluster, show themselves as the one owner of all slots.

use std::fmt::Write;

use fondaco_catalog::{Catalog, Member, Membership};
use fondaco_model::cluster::TopologyNode;
use fondaco_model::{NodeId, SLOT_COUNT, slot_of_wire_key};
use fondaco_resp::Reply;
use fondaco_resp::command::CommandId;

use super::{Call, Refusal, SYNTAX_ERROR};

/// A node as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    /// Its name: 40 hexadecimal digits.
    id: String,
    host: String,
    port: i64,
    is_me: bool,
    is_live: bool,
}

/// Slots, from the first to the last, and the nodes that have them: the first one is the master.
struct SlotRange {
    first: u32,
    last: u32,
    nodes: Vec<Shown>,
}

/// The part of the cluster that is shown.
struct Overview {
    epoch: u64,
    /// All nodes, those without slots and those that are not there too.
    nodes: Vec<Shown>,
    /// In order. Slots whose owners are all gone are in none.
    ranges: Vec<SlotRange>,
}

pub(super) fn cluster(call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let catalog = call.context.shared.catalog.load();
    let overview = Overview::of(&catalog, call.client.local_address());
    let me = || overview.nodes.iter().find(|node| node.is_me).map_or("", |me| &me.id);
    match call.command {
        CommandId::ClusterSlots => {
            call.session.follows_slots = true;
            overview.write_slots(reply);
        }
        CommandId::ClusterShards => {
            call.session.follows_slots = true;
            overview.write_shards(reply);
        }
        CommandId::ClusterNodes => {
            call.session.follows_slots = true;
            reply.verbatim(&overview.lines());
        }
        CommandId::ClusterInfo => {
            reply.verbatim(&overview.summary(catalog.membership().map(|membership| &**membership)))
        }
        // A node is in as many groups as there are lists of owners with it: it stands for its own.
        CommandId::ClusterMyId | CommandId::ClusterMyShardId => reply.bulk(me().as_bytes()),
        CommandId::ClusterKeySlot => reply.integer(i64::from(slot_of_wire_key(call.arguments[2]).get())),
        CommandId::ClusterReplicas | CommandId::ClusterSlaves => {
            let id = String::from_utf8_lossy(call.arguments[2]);
            if overview.nodes.iter().all(|node| node.id != id) {
                return Err(format!("ERR Unknown node {id}"));
            }
            // No node is only the copy of one other.
            reply.array(0);
        }
        CommandId::ClusterLinks => reply.array(0),
        _ => return Err(SYNTAX_ERROR.into()),
    }
    Ok(())
}

/// `READONLY`, `READWRITE` and `ASKING`, which only clients send that know of slots.
pub(super) fn note(call: Call<'_>, reply: &mut Reply<'_>) {
    call.session.follows_slots = true;
    call.session.asking = call.command == CommandId::Asking;
    reply.ok();
}

/// `FONDACO.TOPOLOGY`: the tag and the JSON, or null if the caller has them already. A user sees no store that it
/// may not read.
pub(super) fn topology(call: &Call<'_>, reply: &mut Reply<'_>) {
    let catalog = call.context.shared.catalog.load();
    let Some(membership) = catalog.membership() else {
        return reply.error("CLUSTERDOWN this node knows of no cluster yet: ask again in a moment");
    };
    let description = membership.description(call.session.user());
    if call.arguments.get(1) == Some(&description.tag.as_bytes()) {
        return reply.null();
    }
    reply.array(2);
    reply.bulk(description.tag.as_bytes());
    reply.bulk(description.json.as_bytes());
}

impl Shown {
    fn node(id: NodeId, node: &TopologyNode, membership: &Membership) -> Self {
        let (host, port) = split(&node.resp);
        Self {
            id: format!("{:040x}", id.get()),
            host,
            port,
            is_me: membership.is(id),
            is_live: node.live,
        }
    }

    /// This process, where it shows no node but itself.
    fn alone(member: Option<&Member>, address: &str) -> Self {
        let (host, port) = split(address);
        let id = match member {
            Some(Member::Router(identity)) => format!("{identity}{:08x}", 0),
            Some(Member::Node(id)) => format!("{:040x}", id.get()),
            None => format!("{:040x}", NodeId::FIRST.get()),
        };
        Self {
            id,
            host,
            port,
            is_me: true,
            is_live: true,
        }
    }
}

/// An address as host and port.
fn split(address: &str) -> (String, i64) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host.to_owned(), port.parse().unwrap_or(0))
}

impl Overview {
    fn of(catalog: &Catalog, own_address: &str) -> Self {
        match catalog.membership() {
            Some(membership) if !membership.is_router() => Self::of_cluster(membership),
            membership => {
                let alone = Shown::alone(membership.map(|membership| membership.member()), own_address);
                Self {
                    epoch: membership.map_or(0, |membership| membership.topology().epoch),
                    ranges: vec![SlotRange {
                        first: 0,
                        last: SLOT_COUNT - 1,
                        nodes: vec![alone.clone()],
                    }],
                    nodes: vec![alone],
                }
            }
        }
    }

    fn of_cluster(membership: &Membership) -> Self {
        let topology = membership.topology();
        let mut ranges: Vec<(SlotRange, Vec<NodeId>)> = Vec::new();
        for partition in topology.partitions.partitions() {
            let owners: Vec<NodeId> = membership.live_owners(partition).map(|(id, _)| id).collect();
            let slots = topology.partitions.slots_of(partition);
            match ranges.last_mut() {
                Some((range, same)) if *same == owners && range.last + 1 == slots.start => range.last = slots.end - 1,
                _ if owners.is_empty() => {}
                _ => {
                    let nodes = membership.live_owners(partition);
                    let range = SlotRange {
                        first: slots.start,
                        last: slots.end - 1,
                        nodes: nodes.map(|(id, node)| Shown::node(id, node, membership)).collect(),
                    };
                    ranges.push((range, owners));
                }
            }
        }
        let nodes = topology.nodes.iter();
        Self {
            epoch: topology.epoch,
            nodes: nodes.map(|(&id, node)| Shown::node(id, node, membership)).collect(),
            ranges: ranges.into_iter().map(|(range, _)| range).collect(),
        }
    }

    /// The ranges that a node is the master of.
    fn led_by<'a>(&'a self, node: &'a Shown) -> impl Iterator<Item = &'a SlotRange> {
        self.ranges.iter().filter(|range| range.nodes.first() == Some(node))
    }

    /// The rows of `CLUSTER SLOTS`. There are clients, redis-py for one, that take a node for a replica for
    /// ever if that is how a list first shows it, and ask it for no `SCAN` and no `DBSIZE`. Here, nodes are
    /// master of some slots and replica of others: so each is first shown with one slot, and alone.
    fn rows(&self) -> Vec<(u32, u32, &[Shown])> {
        let mut met: Vec<&str> = Vec::new();
        let (mut alone, mut rest) = (Vec::new(), Vec::new());
        for range in &self.ranges {
            let (mut first, last, nodes) = (range.first, range.last, range.nodes.as_slice());
            if let [master, _, ..] = nodes
                && !met.contains(&master.id.as_str())
            {
                met.push(&master.id);
                alone.push((first, first, &nodes[..1]));
                first += 1;
            }
            if first <= last {
                rest.push((first, last, nodes));
            }
        }
        alone.append(&mut rest);
        alone
    }

    fn write_slots(&self, reply: &mut Reply<'_>) {
        let rows = self.rows();
        reply.array(rows.len());
        for (first, last, nodes) in rows {
            reply.array(2 + nodes.len());
            reply.integer(i64::from(first));
            reply.integer(i64::from(last));
            for node in nodes {
                reply.array(4);
                reply.bulk(node.host.as_bytes());
                reply.integer(node.port);
                reply.bulk(node.id.as_bytes());
                reply.map(0);
            }
        }
    }

    /// One shard for each list of owners, with all ranges that have it.
    fn write_shards(&self, reply: &mut Reply<'_>) {
        let mut shards: Vec<(&[Shown], Vec<&SlotRange>)> = Vec::new();
        for range in &self.ranges {
            match shards.iter_mut().find(|(nodes, _)| *nodes == range.nodes) {
                Some((_, ranges)) => ranges.push(range),
                None => shards.push((&range.nodes, vec![range])),
            }
        }
        reply.array(shards.len());
        for (nodes, ranges) in shards {
            reply.map(2);
            reply.bulk(b"slots");
            reply.array(2 * ranges.len());
            for range in ranges {
                reply.integer(i64::from(range.first));
                reply.integer(i64::from(range.last));
            }
            reply.bulk(b"nodes");
            reply.array(nodes.len());
            for (at, node) in nodes.iter().enumerate() {
                reply.map(7);
                for (name, value) in [("id", &node.id), ("ip", &node.host), ("endpoint", &node.host)] {
                    reply.bulk(name.as_bytes());
                    reply.bulk(value.as_bytes());
                }
                reply.bulk(b"port");
                reply.integer(node.port);
                reply.bulk(b"role");
                reply.bulk(if at == 0 { b"master" } else { b"replica" });
                reply.bulk(b"replication-offset");
                reply.integer(0);
                reply.bulk(b"health");
                reply.bulk(b"online");
            }
        }
    }

    /// A line for each node, as `CLUSTER NODES` has them. There is no bus, so that its port is 0.
    fn lines(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let flags = match (node.is_me, node.is_live) {
                (true, _) => "myself,master",
                (false, true) => "master",
                (false, false) => "master,fail",
            };
            let link = if node.is_me || node.is_live {
                "connected"
            } else {
                "disconnected"
            };
            let Shown { id, host, port, .. } = node;
            // Writing to a string does not fail.
            let _ = write!(text, "{id} {host}:{port}@0 {flags} - 0 0 {} {link}", self.epoch);
            for range in self.led_by(node) {
                let _ = match range.first == range.last {
                    true => write!(text, " {}", range.first),
                    false => write!(text, " {}-{}", range.first, range.last),
                };
            }
            text.push('\n');
        }
        text
    }

    /// `CLUSTER INFO`. Slots count as failed if no live node owns them, and if a store cannot be read or written there.
    fn summary(&self, membership: Option<&Membership>) -> String {
        let mut is_ok = vec![false; SLOT_COUNT as usize];
        for range in &self.ranges {
            is_ok[range.first as usize..=range.last as usize].fill(true);
        }
        if let Some(membership) = membership {
            for partition in membership.without_quorum().iter() {
                let slots = membership.topology().partitions.slots_of(partition);
                is_ok[slots.start as usize..slots.end as usize].fill(false);
            }
        }
        let served = is_ok.iter().filter(|&&is_ok| is_ok).count() as u32;
        let leading = self.nodes.iter().filter(|node| self.led_by(node).next().is_some());
        let state = if served == SLOT_COUNT { "ok" } else { "fail" };
        let lines = [
            ("cluster_state", state.to_owned()),
            ("cluster_slots_assigned", SLOT_COUNT.to_string()),
            ("cluster_slots_ok", served.to_string()),
            ("cluster_slots_pfail", 0.to_string()),
            ("cluster_slots_fail", (SLOT_COUNT - served).to_string()),
            ("cluster_known_nodes", self.nodes.len().to_string()),
            ("cluster_size", leading.count().to_string()),
            ("cluster_current_epoch", self.epoch.to_string()),
            ("cluster_my_epoch", self.epoch.to_string()),
            ("cluster_stats_messages_sent", 0.to_string()),
            ("cluster_stats_messages_received", 0.to_string()),
            ("total_cluster_links_buffer_limit_exceeded", 0.to_string()),
        ];
        lines
            .iter()
            .map(|(name, value)| format!("{name}:{value}\r\n"))
            .collect()
    }
}
