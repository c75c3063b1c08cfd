//! Commands that read sets of ids.

use super::*;
use crate::command::ArgumentKind::{Integer, String};

const READ: KeyAccess = KeyAccess::RO.and(KeyAccess::ACCESS);
const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
const O_IDS: &str = "O(N), N being the number of all ids of the sets";
const UNORDERED: &[&str] = &["nondeterministic_output_order"];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::SMembers, "smembers", 2, Group::Set)
        .doc("1.0.0", O_IDS, "Returns all ids of a set, ascending")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(1, READ)])
        .tips(UNORDERED)
        .arguments(&[KEY]),
    CommandSpec::new(Id::SCard, "scard", 2, Group::Set)
        .doc("1.0.0", O_1, "Returns the number of ids of a set")
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, KeyAccess::RO)])
        .arguments(&[KEY]),
    CommandSpec::new(Id::SIsMember, "sismember", 3, Group::Set)
        .doc("1.0.0", O_1, "Tells whether an id is in a set")
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, KeyAccess::RO)])
        .arguments(&[KEY, Argument::new("member", String)]),
    CommandSpec::new(Id::SMIsMember, "smismember", -3, Group::Set)
        .doc(
            "6.2.0",
            O_ARGUMENTS,
            "Tells for each of several ids whether it is in a set",
        )
        .flags(READ_FAST)
        .keys(&[KeySpec::one(1, READ)])
        .arguments(&[KEY, Argument::new("member", String).multiple()]),
    CommandSpec::new(Id::SUnion, "sunion", -2, Group::Set)
        .doc("1.0.0", O_IDS, "Returns the ids that are in any of the sets, ascending")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::every(1, READ)])
        .tips(UNORDERED)
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::SInter, "sinter", -2, Group::Set)
        .doc("1.0.0", O_IDS, "Returns the ids that are in all of the sets, ascending")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::every(1, READ)])
        .tips(UNORDERED)
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::SDiff, "sdiff", -2, Group::Set)
        .doc(
            "1.0.0",
            O_IDS,
            "Returns the ids of the first set that are in none of the others, ascending",
        )
        .flags(Flags::READONLY)
        .keys(&[KeySpec::every(1, READ)])
        .tips(UNORDERED)
        .arguments(&[KEY.multiple()]),
    CommandSpec::new(Id::FondacoIds, "fondaco.ids", -3, Group::Own)
        .doc(
            SINCE,
            O_IDS,
            "Computes over the sets of several keys: UNION, INTERSECTION, DIFFERENCE, INTERSECTS, COUNTS, TOP count, \
             CONTAINS id,…",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("operation", String),
            Argument::new("limit", Integer).optional(),
            Argument::new("key", String).multiple(),
        ]),
    CommandSpec::new(Id::FondacoCompute, "fondaco.compute", -8, Group::Own)
        .doc(
            SINCE,
            O_IDS,
            "Computes over the sets of keys of the store with this number, from this version, as held here",
        )
        .flags(Flags::READONLY)
        .arguments(&[
            Argument::new("envelope", String),
            Argument::new("store-id", Integer),
            Argument::new("version", Integer),
            Argument::new("store", String),
            Argument::new("computation", String),
            Argument::new("parameter", String),
            Argument::new("key", String).multiple(),
        ]),
];
