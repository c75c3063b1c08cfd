//! Commands that monitors, exporters and graphical tools use to learn about the state of a server.

use super::*;
use crate::command::ArgumentKind::{Integer, String};

const OPERATOR: Flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE);
const OPERATOR_NO_SCRIPT: Flags = OPERATOR.and(Flags::NO_SCRIPT);
const ALWAYS: Flags = Flags::LOADING.and(Flags::STALE);
const ALWAYS_NO_SCRIPT: Flags = ALWAYS.and(Flags::NO_SCRIPT);
const OF_ALL_NODES: &[&str] = &[
    "nondeterministic_output",
    "request_policy:all_nodes",
    "response_policy:special",
];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Time, "time", 1, Group::Server)
        .doc("2.6.0", O_1, "Returns the time: seconds since 1970, and microseconds")
        .flags(ALWAYS.and(Flags::FAST))
        .tips(&["nondeterministic_output"]),
    CommandSpec::new(Id::Role, "role", 1, Group::Server)
        .doc(
            "2.8.12",
            O_1,
            "Returns the role of the server: master, since all nodes take writes",
        )
        .flags(ALWAYS_NO_SCRIPT.and(Flags::FAST))
        .categories_are(Categories::ADMIN.and(Categories::DANGEROUS)),
    CommandSpec::new(Id::Wait, "wait", 3, Group::Generic)
        .doc(
            "3.0.0",
            O_1,
            "Returns how many further replicas have each acknowledged write",
        )
        .flags(Flags::NO_SCRIPT)
        .categories_are(Categories::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .arguments(&[Argument::new("numreplicas", Integer), Argument::new("timeout", Integer)]),
    CommandSpec::new(Id::SlowLog, "slowlog", -2, Group::Server)
        .doc("2.2.12", O_SUBCOMMAND, "Commands about slow requests")
        .subcommands(SLOWLOG),
    CommandSpec::new(Id::Latency, "latency", -2, Group::Server)
        .doc("2.8.13", O_SUBCOMMAND, "Commands about the latency of requests")
        .subcommands(LATENCY),
    CommandSpec::new(Id::Acl, "acl", -2, Group::Server)
        .doc("6.0.0", O_SUBCOMMAND, "Commands about users and their rights")
        .subcommands(ACL),
    CommandSpec::new(Id::Module, "module", -2, Group::Server)
        .doc(
            "4.0.0",
            O_SUBCOMMAND,
            "Commands about modules, which this server does not have",
        )
        .subcommands(MODULE),
    CommandSpec::new(Id::Memory, "memory", -2, Group::Server)
        .doc("4.0.0", O_SUBCOMMAND, "Commands about memory")
        .subcommands(MEMORY),
];

const SLOWLOG: &[CommandSpec] = &[
    CommandSpec::new(Id::SlowLogGet, "slowlog|get", -2, Group::Server)
        .doc("2.2.12", O_REQUESTS, "Lists slow requests, the latest first")
        .flags(OPERATOR)
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .arguments(&[Argument::new("count", Integer).optional()]),
    CommandSpec::new(Id::SlowLogLen, "slowlog|len", 2, Group::Server)
        .doc("2.2.12", O_1, "Counts the stored slow requests")
        .flags(OPERATOR)
        .tips(&[
            "request_policy:all_nodes",
            "response_policy:agg_sum",
            "nondeterministic_output",
        ]),
    CommandSpec::new(Id::SlowLogReset, "slowlog|reset", 2, Group::Server)
        .doc("2.2.12", O_REQUESTS, "Deletes the stored slow requests")
        .flags(OPERATOR)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    help(Id::SlowLogHelp, "slowlog|help", "6.2.0"),
];

const LATENCY: &[CommandSpec] = &[
    CommandSpec::new(Id::LatencyHistogram, "latency|histogram", -2, Group::Server)
        .doc("7.0.0", O_COMMANDS, "Counts commands by their latency")
        .flags(OPERATOR_NO_SCRIPT)
        .tips(OF_ALL_NODES)
        .arguments(&[Argument::new("command", String).optional().multiple()]),
    CommandSpec::new(Id::LatencyLatest, "latency|latest", 2, Group::Server)
        .doc(
            "2.8.13",
            O_REQUESTS,
            "Reports the latest slow request, and the slowest one",
        )
        .flags(OPERATOR_NO_SCRIPT)
        .tips(OF_ALL_NODES),
    help(Id::LatencyHelp, "latency|help", "2.8.13"),
];

const ACL: &[CommandSpec] = &[
    CommandSpec::new(Id::AclWhoAmI, "acl|whoami", 2, Group::Server)
        .doc("6.0.0", O_1, "Returns the user name of the connection")
        .flags(ALWAYS_NO_SCRIPT),
    CommandSpec::new(Id::AclList, "acl|list", 2, Group::Server)
        .doc("6.0.0", O_USERS, "Lists users and their rights")
        .flags(OPERATOR_NO_SCRIPT),
    CommandSpec::new(Id::AclCat, "acl|cat", -2, Group::Server)
        .doc(
            "6.0.0",
            O_COMMANDS,
            "Lists categories of commands, or the commands in one",
        )
        .flags(ALWAYS_NO_SCRIPT)
        .arguments(&[Argument::new("categoryname", String).optional()]),
    help(Id::AclHelp, "acl|help", "6.0.0"),
];

const MODULE: &[CommandSpec] = &[
    CommandSpec::new(Id::ModuleList, "module|list", 2, Group::Server)
        .doc("4.0.0", O_1, "Lists modules: always an empty list")
        .flags(Flags::ADMIN.and(Flags::NO_SCRIPT))
        .tips(&["nondeterministic_output_order"]),
    help(Id::ModuleHelp, "module|help", "5.0.0"),
];

const MEMORY: &[CommandSpec] = &[
    CommandSpec::new(Id::MemoryUsage, "memory|usage", -3, Group::Server)
        .doc("4.0.0", O_1, "Measures a key with its value, in bytes")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::one(2, KeyAccess::RO)])
        .arguments(&[KEY, Argument::new("count", Integer).after("SAMPLES").optional()]),
    help(Id::MemoryHelp, "memory|help", "4.0.0"),
];

const fn help(id: Id, name: &'static str, since: &'static str) -> CommandSpec {
    CommandSpec::new(id, name, 2, Group::Server)
        .doc(since, O_1, "Prints this help")
        .flags(ALWAYS)
}
