//! Commands that read data.

use super::*;
use crate::command::ArgumentKind::{Integer, Pattern, String};

const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const READ: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);
const START: Argument = Argument::new("start", Integer);
const END: Argument = Argument::new("end", Integer);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Get, "get", 2, Group::String)
        .doc("1.0.0", O_1, "Reads the value of a key")
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::MGet, "mget", -2, Group::String)
        .doc(
            "1.0.0",
            O_KEYS,
            "Reads the values of several keys, all from one version of each store",
        )
        .flags(READ_FAST)
        .keys(&[KeySpec::every(1, READ)])
        .tips(&["request_policy:multi_shard"])
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::GetRange, "getrange", 4, Group::String)
        .doc("2.4.0", O_BYTES, "Reads a part of a value")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[KEY, START, END]),
    CommandSpec::new(Id::SubStr, "substr", 4, Group::String)
        .doc("1.0.0", O_BYTES, "Reads a part of a value")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .deprecated("2.0.0", "`GETRANGE`")
        .arguments(&[KEY, START, END]),
    CommandSpec::new(Id::StrLen, "strlen", 2, Group::String)
        .doc("2.2.0", O_1, "Returns the length of a value, in bytes")
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, KeyAccess::RO)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::Exists, "exists", -2, Group::Generic)
        .doc("1.0.0", O_KEYS, "Counts the keys that exist")
        .flags(READ_FAST)
        .keys(&[KeySpec::every(1, KeyAccess::RO)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::Type, "type", 2, Group::Generic)
        .doc("1.0.0", O_1, "Returns the type of a value: string, or none")
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, KeyAccess::RO)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::Ttl, "ttl", 2, Group::Generic)
        .doc(
            "1.0.0",
            O_1,
            "Returns the seconds until a key expires: -1 never, -2 no such key",
        )
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, READ)])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    CommandSpec::new(Id::PTtl, "pttl", 2, Group::Generic)
        .doc(
            "2.6.0",
            O_1,
            "Returns the milliseconds until a key expires: -1 never, -2 no such key",
        )
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, READ)])
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY]),
    CommandSpec::new(Id::ExpireTime, "expiretime", 2, Group::Generic)
        .doc(
            "7.0.0",
            O_1,
            "Returns the second at which a key expires: -1 never, -2 no such key",
        )
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::PExpireTime, "pexpiretime", 2, Group::Generic)
        .doc(
            "7.0.0",
            O_1,
            "Returns the millisecond at which a key expires: -1 never, -2 no such key",
        )
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::Touch, "touch", -2, Group::Generic)
        .doc("3.2.1", O_KEYS, "Counts the keys that exist, like EXISTS")
        .flags(READ_FAST)
        .keys(&[KeySpec::every(1, KeyAccess::RO)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::RandomKey, "randomkey", 1, Group::Generic)
        .doc("1.0.0", O_1, "Returns some key of some store")
        .flags(Flags::READONLY)
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    CommandSpec::new(Id::Object, "object", -2, Group::Generic)
        .doc("2.2.3", O_SUBCOMMAND, "Commands about the storage of a value")
        .categories_are(Categories::NONE)
        .subcommands(OBJECT),
    CommandSpec::new(Id::Scan, "scan", -2, Group::Generic)
        .doc("2.8.0", O_SCAN, "Walks through the keys of a store, a few at a time")
        .flags(Flags::READONLY)
        .tips(&["nondeterministic_output", "request_policy:special"])
        .arguments(&[
            Argument::new("cursor", Integer),
            Argument::new("pattern", Pattern).after("MATCH").optional(),
            Argument::new("count", Integer).after("COUNT").optional(),
            Argument::new("type", String).after("TYPE").optional(),
        ]),
    CommandSpec::new(Id::DbSize, "dbsize", 1, Group::Server)
        .doc("1.0.0", O_1, "Counts the keys of all stores")
        .flags(READ_FAST)
        .categories_are(Categories::KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
];

const SECOND_KEY: &[KeySpec] = &[KeySpec::one(2, KeyAccess::RO)];

const OBJECT: &[CommandSpec] = &[
    object(Id::ObjectEncoding, "object|encoding").doc(
        "2.2.3",
        O_1,
        "Returns the encoding that Redis would use for a value",
    ),
    object(Id::ObjectFreq, "object|freq").doc(
        "4.0.0",
        O_1,
        "Returns the number of accesses to a key: not supported, accesses are not counted",
    ),
    object(Id::ObjectIdleTime, "object|idletime").doc(
        "2.2.3",
        O_1,
        "Returns the time since the last access to a key: not supported, it is not recorded",
    ),
    object(Id::ObjectRefCount, "object|refcount").doc("2.2.3", O_1, "Counts the references to a value: 1"),
    CommandSpec::new(Id::ObjectHelp, "object|help", 2, Group::Generic)
        .doc("6.2.0", O_1, "Prints this help")
        .flags(Flags::LOADING.and(Flags::STALE)),
];

const fn object(id: Id, name: &'static str) -> CommandSpec {
    CommandSpec::new(id, name, 3, Group::Generic)
        .flags(Flags::READONLY)
        .keys(SECOND_KEY)
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY])
}
