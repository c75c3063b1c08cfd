//! Commands that Redis does not have, or has for something else: the processes of a cluster and the client library use them to read from a node.
//! They are never forwarded.

use super::connection::ANYONE;
use super::*;
use crate::command::ArgumentKind::{Integer, String};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::FondacoNonce, "fondaco.nonce", 1, Group::Own)
        .doc(SINCE, O_1, "Returns a nonce for FONDACO.PROVE, and the address of this server")
        .flags(ANYONE),
    CommandSpec::new(Id::FondacoProve, "fondaco.prove", 4, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Authenticates the client without sending the password, and the server to the client",
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
    CommandSpec::new(Id::FondacoMGet, "fondaco.mget", -2, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Reads the values of several keys; FANOUT and STRATEGY say how many groups of nodes are asked, and which nodes; \
             DEADLINE how many milliseconds it may take, and with PARTIAL late keys are listed behind the values; FIELDS which fields \
             of the values are read",
        )
        .flags(Flags::READONLY.and(Flags::FAST))
        .arguments(&[
            Argument::new("fanout", Integer).optional(),
            Argument::new("strategy", String).optional(),
            Argument::new("deadline", Integer).optional(),
            Argument::new("partial", String).optional(),
            Argument::new("fields", String).optional().multiple(),
            Argument::new("key", String).multiple(),
        ]),
    CommandSpec::new(Id::FondacoMScore, "fondaco.mscore", -5, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Computes a score over a field of the values of several keys: DOT, COSINE, HADAMARD, COUNT; WHERE conditions hold; with TOP \
             the best",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("operation", String),
            Argument::new("field", String),
            Argument::new("options", String).optional().multiple(),
            Argument::new("keys", String),
            Argument::new("key", String).multiple(),
        ]),
    // The name and the form of Redis, but of a store in the place of a stream: it has no key.
    CommandSpec::new(Id::XRead, "xread", -4, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Follows the changes of a store from a position on: $ for now, 0 for all keys, version:NUMBER, time:MILLISECONDS, or the id of \
             the last entry",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("count", Integer).after("COUNT").optional(),
            Argument::new("milliseconds", Integer).after("BLOCK").optional(),
            Argument::new("store", String).after("STREAMS"),
            Argument::new("position", String),
        ]),
    CommandSpec::new(Id::FondacoScan, "fondaco.scan", 6, Group::Own)
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
    CommandSpec::new(Id::FondacoExpiry, "fondaco.expiry", 3, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Returns the millisecond at which a key of a store expires, as held here: -1 never, -2 no such key",
        )
        .flags(Flags::READONLY)
        .arguments(&[Argument::new("store", String), Argument::new("key", String)]),
    CommandSpec::new(Id::FondacoApplied, "fondaco.applied", 6, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Waits until reads of a key of a store see the event at a place of its topic: 1, or 0 if they do not in time",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("store", String),
            Argument::new("key", String),
            Argument::new("partition", Integer),
            Argument::new("offset", Integer),
            Argument::new("milliseconds", Integer),
        ]),
    CommandSpec::new(Id::FondacoSize, "fondaco.size", 2, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Counts the keys of a store in the partitions whose first owner is this node",
        )
        .flags(Flags::READONLY.and(Flags::FAST))
        .arguments(&[Argument::new("store", String)]),
    CommandSpec::new(Id::FondacoTopology, "fondaco.topology", -1, Group::Own)
        .doc(
            SINCE,
            O_NODES,
            "Returns the topology as a tag and JSON; null if the given tag is still current",
        )
        .flags(Flags::LOADING.and(Flags::STALE))
        .arguments(&[Argument::new("tag", String).optional()]),
    CommandSpec::new(Id::FondacoTrace, "fondaco.trace", 2, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Sets the W3C traceparent of the next command on data of this connection",
        )
        .flags(Flags::LOADING.and(Flags::STALE).and(Flags::FAST))
        .arguments(&[Argument::new("traceparent", String)]),
];
