//! Commands that write values. Batch stores refuse them; versioned stores accept those of one key.

use super::*;
use crate::command::ArgumentKind::{Double, Integer, String, UnixTime};

const GROW_FAST: Flags = Flags::WRITE.and(Flags::DENY_OOM).and(Flags::FAST);
const GROW: Flags = Flags::WRITE.and(Flags::DENY_OOM);
const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);
const READ_UPDATE: KeyAccess = KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE);
const OVERWRITE: KeyAccess = KeyAccess::OW.and(KeyAccess::UPDATE);
const INSERT: KeyAccess = KeyAccess::OW.and(KeyAccess::INSERT);
const KEYS_AND_VALUES: Argument = Argument::block("key_value", &[KEY, Argument::new("value", String)]).multiple();
const VALUE: Argument = Argument::new("value", String);
const SECONDS: Argument = Argument::new("seconds", Integer);
const MILLISECONDS: Argument = Argument::new("milliseconds", Integer);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Set, "set", -3, Group::String)
        .doc("1.0.0", O_1, "Writes a value")
        .flags(GROW)
        .keys(&[KeySpec::one(1, READ_UPDATE.and(KeyAccess::VARIABLE))])
        .arguments(&[
            KEY,
            VALUE,
            Argument::one_of("condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")]).optional(),
            Argument::word("get", "GET").optional(),
            Argument::one_of(
                "expiration",
                &[
                    SECONDS.after("EX"),
                    MILLISECONDS.after("PX"),
                    Argument::new("unix-time-seconds", UnixTime).after("EXAT"),
                    Argument::new("unix-time-milliseconds", UnixTime).after("PXAT"),
                    Argument::word("keepttl", "KEEPTTL"),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(Id::SetNx, "setnx", 3, Group::String)
        .doc("1.0.0", O_1, "Writes a value if the key has none")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, INSERT)])
        .arguments(&[KEY, VALUE]),
    CommandSpec::new(Id::SetEx, "setex", 4, Group::String)
        .doc("2.0.0", O_1, "Writes a value that expires after seconds")
        .flags(GROW)
        .keys(&[KeySpec::one(1, OVERWRITE)])
        .arguments(&[KEY, SECONDS, VALUE]),
    CommandSpec::new(Id::PSetEx, "psetex", 4, Group::String)
        .doc("2.6.0", O_1, "Writes a value that expires after milliseconds")
        .flags(GROW)
        .keys(&[KeySpec::one(1, OVERWRITE)])
        .arguments(&[KEY, MILLISECONDS, VALUE]),
    CommandSpec::new(Id::MSet, "mset", -3, Group::String)
        .doc("1.0.1", O_KEYS, "Writes several values")
        .flags(GROW)
        .keys(&[KeySpec::every(2, OVERWRITE)])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .arguments(&[KEYS_AND_VALUES]),
    CommandSpec::new(Id::MSetNx, "msetnx", -3, Group::String)
        .doc(
            "1.0.1",
            O_KEYS,
            "Writes several values, or none if one of the keys exists",
        )
        .flags(GROW)
        .keys(&[KeySpec::every(2, INSERT)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .arguments(&[KEYS_AND_VALUES]),
    CommandSpec::new(Id::GetSet, "getset", 3, Group::String)
        .doc("1.0.0", O_1, "Writes a value and returns the old one")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .deprecated("6.2.0", "`SET` with `GET`")
        .arguments(&[KEY, VALUE]),
    CommandSpec::new(Id::GetDel, "getdel", 2, Group::String)
        .doc("6.2.0", O_1, "Reads a value and deletes it")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(
            1,
            KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE),
        )])
        .arguments(&[KEY]),
    CommandSpec::new(Id::GetEx, "getex", -2, Group::String)
        .doc("6.2.0", O_1, "Reads a value and sets its expiry")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .arguments(&[
            KEY,
            Argument::one_of(
                "expiration",
                &[
                    SECONDS.after("EX"),
                    MILLISECONDS.after("PX"),
                    Argument::new("unix-time-seconds", UnixTime).after("EXAT"),
                    Argument::new("unix-time-milliseconds", UnixTime).after("PXAT"),
                    Argument::word("persist", "PERSIST"),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(Id::Append, "append", 3, Group::String)
        .doc("2.0.0", O_1, "Appends to a value")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, KeyAccess::RW.and(KeyAccess::INSERT))])
        .arguments(&[KEY, VALUE]),
    CommandSpec::new(Id::SetRange, "setrange", 4, Group::String)
        .doc("2.2.0", O_BYTES, "Overwrites a part of a value")
        .flags(GROW)
        .keys(&[KeySpec::one(1, KeyAccess::RW.and(KeyAccess::UPDATE))])
        .arguments(&[KEY, Argument::new("offset", Integer), VALUE]),
    CommandSpec::new(Id::Incr, "incr", 2, Group::String)
        .doc("1.0.0", O_1, "Adds one to a number")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::IncrBy, "incrby", 3, Group::String)
        .doc("1.0.0", O_1, "Adds an integer to a number")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .arguments(&[KEY, Argument::new("increment", Integer)]),
    CommandSpec::new(Id::IncrByFloat, "incrbyfloat", 3, Group::String)
        .doc("2.6.0", O_1, "Adds a fraction to a number")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .arguments(&[KEY, Argument::new("increment", Double)]),
    CommandSpec::new(Id::Decr, "decr", 2, Group::String)
        .doc("1.0.0", O_1, "Subtracts one from a number")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::DecrBy, "decrby", 3, Group::String)
        .doc("1.0.0", O_1, "Subtracts an integer from a number")
        .flags(GROW_FAST)
        .keys(&[KeySpec::one(1, READ_UPDATE)])
        .arguments(&[KEY, Argument::new("decrement", Integer)]),
];
