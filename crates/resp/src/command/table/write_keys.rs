//! Commands that delete, rename or expire keys. Batch stores refuse them; versioned stores accept those of one key.

use super::*;
use crate::command::ArgumentKind::{Integer, String, UnixTime};

const GROW: Flags = Flags::WRITE.and(Flags::DENY_OOM);
const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);
const READ_DELETE: KeyAccess = KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::DELETE);
const OVERWRITE: KeyAccess = KeyAccess::OW.and(KeyAccess::UPDATE);
const UPDATE: KeyAccess = KeyAccess::RW.and(KeyAccess::UPDATE);
const DELETE: KeyAccess = KeyAccess::RM.and(KeyAccess::DELETE);
const CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional();
const ASYNC: Argument = Argument::one_of(
    "async",
    &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
)
.optional();
const SECONDS: Argument = Argument::new("seconds", Integer);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Del, "del", -2, Group::Generic)
        .doc("1.0.0", O_KEYS, "Deletes keys")
        .flags(Flags::WRITE)
        .keys(&[KeySpec::every(1, DELETE)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::Unlink, "unlink", -2, Group::Generic)
        .doc("4.0.0", O_KEYS, "Deletes keys, and frees their memory later")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::every(1, DELETE)])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::Expire, "expire", -3, Group::Generic)
        .doc("1.0.0", O_1, "Sets the seconds after which a key expires")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(1, UPDATE)])
        .arguments(&[KEY, SECONDS, CONDITION]),
    CommandSpec::new(Id::PExpire, "pexpire", -3, Group::Generic)
        .doc("2.6.0", O_1, "Sets the milliseconds after which a key expires")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(1, UPDATE)])
        .arguments(&[KEY, Argument::new("milliseconds", Integer), CONDITION]),
    CommandSpec::new(Id::ExpireAt, "expireat", -3, Group::Generic)
        .doc("1.2.0", O_1, "Sets the second at which a key expires")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(1, UPDATE)])
        .arguments(&[KEY, Argument::new("unix-time-seconds", UnixTime), CONDITION]),
    CommandSpec::new(Id::PExpireAt, "pexpireat", -3, Group::Generic)
        .doc("2.6.0", O_1, "Sets the millisecond at which a key expires")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(1, UPDATE)])
        .arguments(&[KEY, Argument::new("unix-time-milliseconds", UnixTime), CONDITION]),
    CommandSpec::new(Id::Persist, "persist", 2, Group::Generic)
        .doc("2.2.0", O_1, "Removes the expiry of a key")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(1, UPDATE)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::Copy, "copy", -3, Group::Generic)
        .doc("6.2.0", O_BYTES, "Copies a value to another key")
        .flags(GROW)
        .keys(&[
            KeySpec::one(1, KeyAccess::RO.and(KeyAccess::ACCESS)),
            KeySpec::one(2, OVERWRITE),
        ])
        .arguments(&[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::new("destination-db", Integer).after("DB").optional(),
            Argument::word("replace", "REPLACE").optional(),
        ]),
    CommandSpec::new(Id::Move, "move", 3, Group::Generic)
        .doc("1.0.0", O_1, "Moves a key to another database")
        .flags(WRITE_FAST)
        .keys(&[KeySpec::one(
            1,
            KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE),
        )])
        .arguments(&[KEY, Argument::new("db", Integer)]),
    CommandSpec::new(Id::Rename, "rename", 3, Group::Generic)
        .doc("1.0.0", O_1, "Renames a key")
        .flags(Flags::WRITE)
        .keys(&[KeySpec::one(1, READ_DELETE), KeySpec::one(2, OVERWRITE)])
        .arguments(&[KEY, Argument::key("newkey", 1)]),
    CommandSpec::new(Id::RenameNx, "renamenx", 3, Group::Generic)
        .doc("1.0.0", O_1, "Renames a key, if the new name is free")
        .flags(WRITE_FAST)
        .keys(&[
            KeySpec::one(1, READ_DELETE),
            KeySpec::one(2, KeyAccess::OW.and(KeyAccess::INSERT)),
        ])
        .arguments(&[KEY, Argument::key("newkey", 1)]),
    CommandSpec::new(Id::Restore, "restore", -4, Group::Generic)
        .doc("2.6.0", O_BYTES, "Writes a value from a dump")
        .flags(GROW)
        .categories_are(Categories::KEYSPACE.and(Categories::DANGEROUS))
        .keys(&[KeySpec::one(1, OVERWRITE)])
        .arguments(&[
            KEY,
            Argument::new("ttl", Integer),
            Argument::new("serialized-value", String),
            Argument::word("replace", "REPLACE").optional(),
            Argument::word("absttl", "ABSTTL").optional(),
            SECONDS.after("IDLETIME").optional(),
            Argument::new("frequency", Integer).after("FREQ").optional(),
        ]),
    CommandSpec::new(Id::FlushDb, "flushdb", -1, Group::Server)
        .doc("1.0.0", O_ALL_KEYS, "Deletes all keys of the database")
        .flags(Flags::WRITE)
        .categories_are(Categories::KEYSPACE.and(Categories::DANGEROUS))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[ASYNC]),
    CommandSpec::new(Id::FlushAll, "flushall", -1, Group::Server)
        .doc("1.0.0", O_ALL_KEYS, "Deletes all keys")
        .flags(Flags::WRITE)
        .categories_are(Categories::KEYSPACE.and(Categories::DANGEROUS))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[ASYNC]),
];
