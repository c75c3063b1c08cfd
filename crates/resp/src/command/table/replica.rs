//! The commands between coordinators and replicas of versioned stores. They are never forwarded: each is about the data
//! of the node itself.

use super::*;
use crate::command::ArgumentKind::{Integer, String};

const ENVELOPE: Argument = Argument::new("envelope", String);
const STORE_ID: Argument = Argument::new("store-id", Integer);
const STORE: Argument = Argument::new("store", String);
const KEYS_AND_RECORDS: Argument = Argument::block(
    "key_record",
    &[Argument::new("key", String), Argument::new("record", String)],
)
.multiple();
const PARTITION: Argument = Argument::new("partition", Integer);
const DEPTH: Argument = Argument::new("depth", Integer);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::FondacoRGet, "fondaco.rget", -6, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Reads records of keys on this replica, or only their contexts, or only the parts that the caller lacks",
        )
        .flags(Flags::READONLY.and(Flags::FAST))
        .arguments(&[
            ENVELOPE,
            STORE_ID,
            Argument::one_of(
                "wanted",
                &[
                    Argument::block(
                        "part_keys",
                        &[
                            Argument::one_of(
                                "part",
                                &[Argument::word("full", "FULL"), Argument::word("context", "CONTEXT")],
                            ),
                            STORE,
                            Argument::new("key", String).multiple(),
                        ],
                    ),
                    Argument::block(
                        "other_keys",
                        &[
                            Argument::word("other", "OTHER"),
                            STORE,
                            Argument::block(
                                "key_known",
                                &[Argument::new("key", String), Argument::new("known", String)],
                            )
                            .multiple(),
                        ],
                    ),
                ],
            ),
        ]),
    CommandSpec::new(Id::FondacoRPut, "fondaco.rput", 8, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Writes a key on this replica, and returns the record for the other replicas to merge",
        )
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .arguments(&[
            ENVELOPE,
            STORE_ID,
            Argument::one_of(
                "over",
                &[
                    Argument::word("context", "CONTEXT"),
                    Argument::word("all", "ALL"),
                    Argument::word("unchanged", "UNCHANGED"),
                ],
            ),
            STORE,
            Argument::new("key", String),
            Argument::new("context", String),
            Argument::new("update", String),
        ]),
    CommandSpec::new(Id::FondacoRMerge, "fondaco.rmerge", -6, Group::Own)
        .doc(SINCE, O_KEYS, "Merges records into those of this replica")
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .arguments(&[ENVELOPE, STORE_ID, STORE, KEYS_AND_RECORDS]),
    CommandSpec::new(Id::FondacoRHint, "fondaco.rhint", -7, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Stores hints: records for another node, until it is back",
        )
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .arguments(&[
            ENVELOPE,
            STORE_ID,
            STORE,
            Argument::new("node", Integer),
            KEYS_AND_RECORDS,
        ]),
    CommandSpec::new(Id::FondacoRTree, "fondaco.rtree", -7, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Returns the hashes below nodes of the Merkle tree of a partition",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            ENVELOPE,
            STORE_ID,
            STORE,
            PARTITION,
            DEPTH,
            Argument::new("node", Integer).multiple(),
        ]),
    CommandSpec::new(Id::FondacoRSync, "fondaco.rsync", -6, Group::Own)
        .doc(
            SINCE,
            O_KEYS,
            "Compares leaves of the Merkle tree of a partition, and returns the records that the caller lacks",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            ENVELOPE,
            STORE_ID,
            STORE,
            PARTITION,
            DEPTH,
            Argument::block(
                "leaf_digests",
                &[Argument::new("leaf", Integer), Argument::new("digests", String)],
            )
            .optional()
            .multiple(),
        ]),
    CommandSpec::new(Id::FondacoRHints, "fondaco.rhints", 4, Group::Own)
        .doc(SINCE, O_1, "Returns the time of the oldest hint for another node")
        .flags(Flags::READONLY.and(Flags::FAST))
        .arguments(&[ENVELOPE, STORE_ID, STORE]),
];
