//! Commands of Redis Cluster: the locations of keys, for clients that connect to the right node themselves.

use super::*;
use crate::command::ArgumentKind::{Integer, String};

const FOR_ALL: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);
const NODE_ID: &[Argument] = &[Argument::new("node-id", String)];
const O_PARTITION: &str = "O(N), N being the number of keys in the slot's partition";
const CHANGING: &[&str] = &["nondeterministic_output"];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Cluster, "cluster", -2, Group::Cluster)
        .doc("3.0.0", O_SUBCOMMAND, "Commands about the cluster")
        .subcommands(CLUSTER),
    CommandSpec::new(Id::ReadOnly, "readonly", 1, Group::Cluster)
        .doc(
            "3.0.0",
            O_1,
            "Allows redirections on this connection, and reads from any replica",
        )
        .flags(FOR_ALL)
        .categories_are(Categories::CONNECTION),
    CommandSpec::new(Id::ReadWrite, "readwrite", 1, Group::Cluster)
        .doc(
            "3.0.0",
            O_1,
            "Allows redirections on this connection, like READONLY: all replicas read and write",
        )
        .flags(FOR_ALL)
        .categories_are(Categories::CONNECTION),
    CommandSpec::new(Id::Asking, "asking", 1, Group::Cluster)
        .doc(
            "3.0.0",
            O_1,
            "Makes this node answer the next request, wherever its keys are",
        )
        .flags(Flags::FAST)
        .categories_are(Categories::CONNECTION),
];

const CLUSTER: &[CommandSpec] = &[
    subcommand(Id::ClusterSlots, "cluster|slots", 2)
        .doc("3.0.0", O_NODES, "Lists ranges of slots with the nodes that have them")
        .deprecated("7.0.0", "`CLUSTER SHARDS`")
        .tips(CHANGING),
    subcommand(Id::ClusterShards, "cluster|shards", 2)
        .doc("7.0.0", O_NODES, "Lists groups of nodes with the slots that they have")
        .tips(CHANGING),
    subcommand(Id::ClusterNodes, "cluster|nodes", 2)
        .doc("3.0.0", O_NODES, "Describes all nodes, one a line")
        .tips(CHANGING),
    subcommand(Id::ClusterInfo, "cluster|info", 2)
        .doc("3.0.0", O_1, "Describes the cluster as a whole")
        .tips(CHANGING),
    subcommand(Id::ClusterMyId, "cluster|myid", 2).doc("3.0.0", O_1, "Returns the name of this node"),
    subcommand(Id::ClusterMyShardId, "cluster|myshardid", 2)
        .doc("7.2.0", O_1, "Returns the name of the group of this node")
        .tips(CHANGING),
    subcommand(Id::ClusterKeySlot, "cluster|keyslot", 3)
        .doc("3.0.0", O_BYTES, "Computes the slot of a key")
        .arguments(&[Argument::new("key", String)]),
    subcommand(Id::ClusterReplicas, "cluster|replicas", 3)
        .doc("5.0.0", O_1, "Lists the nodes that only copy another one: none does")
        .flags(Flags::ADMIN.and(Flags::STALE))
        .tips(CHANGING)
        .arguments(NODE_ID),
    subcommand(Id::ClusterSlaves, "cluster|slaves", 3)
        .doc("3.0.0", O_1, "Lists the nodes that only copy another one: none does")
        .flags(Flags::ADMIN.and(Flags::STALE))
        .deprecated("5.0.0", "`CLUSTER REPLICAS`")
        .tips(CHANGING)
        .arguments(NODE_ID),
    subcommand(Id::ClusterLinks, "cluster|links", 2)
        .doc(
            "7.0.0",
            O_1,
            "Lists the connections of the cluster bus: there is no such bus",
        )
        .tips(CHANGING),
    subcommand(Id::ClusterCountKeysInSlot, "cluster|countkeysinslot", 3)
        .doc("3.0.0", O_PARTITION, "Counts the keys of a slot on this node")
        .arguments(&[Argument::new("slot", Integer)]),
    subcommand(Id::ClusterGetKeysInSlot, "cluster|getkeysinslot", 4)
        .doc("3.0.0", O_PARTITION, "Lists keys of a slot on this node")
        .tips(CHANGING)
        .arguments(&[Argument::new("slot", Integer), Argument::new("count", Integer)]),
    subcommand(Id::ClusterHelp, "cluster|help", 2)
        .doc("5.0.0", O_1, "Prints this help")
        .flags(Flags::LOADING.and(Flags::STALE)),
];

const fn subcommand(id: Id, name: &'static str, arity: i32) -> CommandSpec {
    CommandSpec::new(id, name, arity, Group::Cluster).flags(Flags::STALE)
}
