//! Commands of versioned stores that Redis does not have: values with the causal context in which they were read.

use super::*;
use crate::command::ArgumentKind::{Integer, String, UnixTime};

const CONTEXT: Argument = Argument::new("context", String);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::FondacoGet, "fondaco.get", 2, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Reads all concurrent values of a key, and the context for overwriting them",
        )
        .flags(Flags::READONLY.and(Flags::FAST))
        .keys(&[KeySpec::one(1, KeyAccess::RO.and(KeyAccess::ACCESS))])
        .arguments(&[KEY]),
    CommandSpec::new(Id::FondacoPut, "fondaco.put", -4, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Overwrites the values that a context covers, and returns the new context",
        )
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .keys(&[KeySpec::one(1, KeyAccess::RW.and(KeyAccess::UPDATE))])
        .arguments(&[
            KEY,
            CONTEXT,
            Argument::new("value", String),
            Argument::new("milliseconds", Integer).after("PX").optional(),
        ]),
    CommandSpec::new(Id::FondacoDel, "fondaco.del", 3, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Deletes the values that a context covers, and returns the new context",
        )
        .flags(Flags::WRITE)
        .keys(&[KeySpec::one(1, KeyAccess::RW.and(KeyAccess::DELETE))])
        .arguments(&[KEY, CONTEXT]),
    CommandSpec::new(Id::FondacoUpdate, "fondaco.update", -3, Group::Own)
        .doc(
            SINCE,
            O_1,
            "Changes fields of a value: sets and removes them, adds to lists, maps and numbers",
        )
        .flags(Flags::WRITE.and(Flags::DENY_OOM))
        .keys(&[KeySpec::one(1, KeyAccess::RW.and(KeyAccess::UPDATE))])
        .arguments(&[
            KEY,
            Argument::new("update", String),
            Argument::one_of(
                "expiration",
                &[
                    Argument::new("seconds", Integer).after("EX"),
                    Argument::new("milliseconds", Integer).after("PX"),
                    Argument::new("unix-time-seconds", UnixTime).after("EXAT"),
                    Argument::new("unix-time-milliseconds", UnixTime).after("PXAT"),
                    Argument::word("persist", "PERSIST"),
                ],
            )
            .optional(),
            Argument::word("return", "RETURN").optional(),
        ]),
];
