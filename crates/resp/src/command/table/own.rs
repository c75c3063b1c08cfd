//! What Redis has no word for: how the processes of a cluster, and its client library, read from one
//! another. None of these is ever forwarded.

use super::connection::ANYONE;
use super::*;
use crate::command::ArgumentKind::{Integer, String};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::FondacoNonce, "fondaco.nonce", 1, Group::Own)
        .doc(SINCE, O_1, "Gives a nonce for FONDACO.PROVE, and the address of this server")
        .flags(ANYONE),
    CommandSpec::new(Id::FondacoProve, "fondaco.prove", 4, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Proves who the client is without sending the password, and has the server prove the same",
        )
        .flags(ANYONE)
        .arguments(&[
            Argument::new("username", String),
            Argument::new("nonce", String),
            Argument::new("proof", String),
        ]),
    CommandSpec::new(Id::FondacoRead, "fondaco.read", -6, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Reads keys of the store with this number, 0 for any, from this version, 0 for the current one, as held here",
        )
        .flags(Flags::READONLY.and(Flags::FAST))
        .arguments(&[
            Argument::new("envelope", String),
            Argument::new("store-id", Integer),
            Argument::new("version", Integer),
            Argument::new("store", String),
            Argument::new("key", String).multiple(),
        ]),
    CommandSpec::new(Id::FondacoScan, "fondaco.scan", 5, Group::Own)
        .doc(
            SINCE,
            O_SCAN,
            "Lists keys of one partition that this node holds, from a hash on",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("store", String),
            Argument::new("partition", Integer),
            Argument::new("hash", Integer),
            Argument::new("count", Integer),
        ]),
    CommandSpec::new(Id::FondacoSize, "fondaco.size", 2, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Counts the keys of a store in the partitions that this node is the first owner of",
        )
        .flags(Flags::READONLY.and(Flags::FAST))
        .arguments(&[Argument::new("store", String)]),
    CommandSpec::new(Id::FondacoTopology, "fondaco.topology", -1, Group::Own)
        .doc(
            SINCE,
            O_NODES,
            "Describes the cluster as a tag and JSON; null if that still is what the tag stands for",
        )
        .flags(Flags::LOADING.and(Flags::STALE))
        .arguments(&[Argument::new("tag", String).optional()]),
];
