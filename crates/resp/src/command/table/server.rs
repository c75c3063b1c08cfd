//! Commands about the server: its state, its settings, its commands.

use super::*;
use crate::command::ArgumentKind::{Pattern, String};

const OPERATOR: Flags = Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE);
const ALWAYS: Flags = Flags::LOADING.and(Flags::STALE);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Info, "info", -1, Group::Server)
        .doc("1.0.0", O_1, "Describes the server, for people and for monitors")
        .flags(ALWAYS)
        .categories_are(Categories::DANGEROUS)
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .arguments(&[Argument::new("section", String).optional().multiple()]),
    CommandSpec::new(Id::Config, "config", -2, Group::Server)
        .doc("2.0.0", O_SUBCOMMAND, "Commands about the server's settings")
        .subcommands(CONFIG),
    CommandSpec::new(Id::Command, "command", -1, Group::Server)
        .doc("2.8.13", O_COMMANDS, "Describes all commands")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .subcommands(COMMAND),
];

const CONFIG: &[CommandSpec] = &[
    CommandSpec::new(Id::ConfigGet, "config|get", -3, Group::Server)
        .doc("2.0.0", O_SETTINGS, "Reads settings whose names match")
        .flags(OPERATOR)
        .arguments(&[Argument::block("parameter", &[Argument::new("parameter", String)]).multiple()]),
    CommandSpec::new(Id::ConfigSet, "config|set", -4, Group::Server)
        .doc("2.0.0", O_SETTINGS, "Changes settings while the server runs")
        .flags(OPERATOR)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .arguments(&[Argument::block(
            "parameter_value",
            &[Argument::new("parameter", String), Argument::new("value", String)],
        )
        .multiple()]),
    CommandSpec::new(Id::ConfigResetStat, "config|resetstat", 2, Group::Server)
        .doc("2.0.0", O_1, "Resets counters to zero")
        .flags(OPERATOR),
    CommandSpec::new(Id::ConfigHelp, "config|help", 2, Group::Server)
        .doc("5.0.0", O_1, "Prints this help")
        .flags(ALWAYS),
];

const COMMAND: &[CommandSpec] = &[
    CommandSpec::new(Id::CommandCount, "command|count", 2, Group::Server)
        .doc("2.8.13", O_1, "Counts the commands")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION),
    CommandSpec::new(Id::CommandDocs, "command|docs", -2, Group::Server)
        .doc("7.0.0", O_NAMES, "Describes commands, for people")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .arguments(&[Argument::new("command-name", String).optional().multiple()]),
    CommandSpec::new(Id::CommandInfo, "command|info", -2, Group::Server)
        .doc("2.8.13", O_NAMES, "Describes commands, for programs")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .arguments(&[Argument::new("command-name", String).optional().multiple()]),
    CommandSpec::new(Id::CommandList, "command|list", -2, Group::Server)
        .doc("7.0.0", O_COMMANDS, "Lists the names of commands")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .arguments(&[Argument::one_of(
            "filterby",
            &[
                Argument::new("module-name", String).after("MODULE"),
                Argument::new("category", String).after("ACLCAT"),
                Argument::new("pattern", Pattern).after("PATTERN"),
            ],
        )
        .after("FILTERBY")
        .optional()]),
    CommandSpec::new(Id::CommandGetKeys, "command|getkeys", -4, Group::Server)
        .doc("2.8.13", O_ARGUMENTS, "Returns the keys of a request")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION)
        .arguments(&[
            Argument::new("command", String),
            Argument::new("argument", String).optional().multiple(),
        ]),
    CommandSpec::new(Id::CommandHelp, "command|help", 2, Group::Server)
        .doc("5.0.0", O_1, "Prints this help")
        .flags(ALWAYS)
        .categories_are(Categories::CONNECTION),
];
