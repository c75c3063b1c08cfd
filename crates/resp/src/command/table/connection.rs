//! Commands about the connection: the client's user, the protocol, whether the server is alive.

use super::*;
use crate::command::ArgumentKind::{Integer, String};

/// For clients that have not authenticated yet.
pub(super) const ANYONE: Flags = Flags::NO_SCRIPT
    .and(Flags::LOADING)
    .and(Flags::STALE)
    .and(Flags::FAST)
    .and(Flags::NO_AUTH)
    .and(Flags::ALLOW_BUSY);
const OPERATOR: Flags = Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE);
const ALWAYS_NO_SCRIPT: Flags = Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE);
const ALWAYS_FAST: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);
const ALWAYS: Flags = Flags::LOADING.and(Flags::STALE);
const ON_OFF: Argument = Argument::one_of("enabled", &[Argument::word("on", "ON"), Argument::word("off", "OFF")]);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(Id::Ping, "ping", -1, Group::Connection)
        .doc("1.0.0", O_1, "Returns PONG, to show that the server is alive")
        .flags(Flags::FAST)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .arguments(&[Argument::new("message", String).optional()]),
    CommandSpec::new(Id::Echo, "echo", 2, Group::Connection)
        .doc("1.0.0", O_1, "Sends the message back")
        .flags(ALWAYS_FAST)
        .arguments(&[Argument::new("message", String)]),
    CommandSpec::new(Id::Select, "select", 2, Group::Connection)
        .doc("1.0.0", O_1, "Selects a database; there is only number 0")
        .flags(ALWAYS_FAST)
        .arguments(&[Argument::new("index", Integer)]),
    CommandSpec::new(Id::Auth, "auth", -2, Group::Connection)
        .doc("1.0.0", O_1, "Authenticates the connection")
        .flags(ANYONE)
        .arguments(&[
            Argument::new("username", String).optional(),
            Argument::new("password", String),
        ]),
    CommandSpec::new(Id::Hello, "hello", -1, Group::Connection)
        .doc(
            "6.0.0",
            O_1,
            "Negotiates the version of the protocol, and describes the server",
        )
        .flags(ANYONE)
        .arguments(&[Argument::block(
            "arguments",
            &[
                Argument::new("protover", Integer),
                Argument::block(
                    "username_password",
                    &[Argument::new("username", String), Argument::new("password", String)],
                )
                .after("AUTH")
                .optional(),
                Argument::new("clientname", String).after("SETNAME").optional(),
            ],
        )
        .optional()]),
    CommandSpec::new(Id::Client, "client", -2, Group::Connection)
        .doc("2.4.0", O_SUBCOMMAND, "Commands about connections")
        .categories_are(Categories::NONE)
        .subcommands(CLIENT),
    CommandSpec::new(Id::Reset, "reset", 1, Group::Connection)
        .doc("6.2.0", O_1, "Resets the connection to its initial state")
        .flags(ANYONE),
    CommandSpec::new(Id::Quit, "quit", -1, Group::Connection)
        .doc("1.0.0", O_1, "Closes the connection")
        .flags(ANYONE),
];

const CLIENT: &[CommandSpec] = &[
    CommandSpec::new(Id::ClientId, "client|id", 2, Group::Connection)
        .doc("5.0.0", O_1, "Returns the number of this connection")
        .flags(ALWAYS_NO_SCRIPT),
    CommandSpec::new(Id::ClientGetName, "client|getname", 2, Group::Connection)
        .doc("2.6.9", O_1, "Returns the name of this connection")
        .flags(ALWAYS_NO_SCRIPT),
    CommandSpec::new(Id::ClientSetName, "client|setname", 3, Group::Connection)
        .doc("2.6.9", O_1, "Names this connection")
        .flags(ALWAYS_NO_SCRIPT)
        .arguments(&[Argument::new("connection-name", String)]),
    CommandSpec::new(Id::ClientSetInfo, "client|setinfo", 4, Group::Connection)
        .doc("7.2.0", O_1, "Sets the library of the client, and its version")
        .flags(ALWAYS_NO_SCRIPT)
        .arguments(&[Argument::one_of(
            "attr",
            &[
                Argument::new("libname", String).after("LIB-NAME"),
                Argument::new("libver", String).after("LIB-VER"),
            ],
        )]),
    CommandSpec::new(Id::ClientInfo, "client|info", 2, Group::Connection)
        .doc("6.2.0", O_1, "Describes this connection")
        .flags(ALWAYS_NO_SCRIPT)
        .tips(&["nondeterministic_output"]),
    CommandSpec::new(Id::ClientList, "client|list", -2, Group::Connection)
        .doc("2.4.0", O_CONNECTIONS, "Describes connections, one a line")
        .flags(OPERATOR)
        .tips(&["nondeterministic_output"])
        .arguments(
            &[Argument::block("id", &[Argument::new("client-id", Integer).multiple()])
                .after("ID")
                .optional()],
        ),
    CommandSpec::new(Id::ClientKill, "client|kill", -3, Group::Connection)
        .doc("2.4.0", O_CONNECTIONS, "Closes connections")
        .flags(OPERATOR)
        .arguments(&[Argument::one_of(
            "filter",
            &[
                Argument::new("ip:port", String),
                Argument::one_of(
                    "new-format",
                    &[
                        Argument::new("client-id", Integer).after("ID").optional(),
                        Argument::new("username", String).after("USER").optional(),
                        Argument::new("ip:port", String).after("ADDR").optional(),
                        Argument::new("ip:port", String).after("LADDR").optional(),
                        Argument::new("yes/no", String).after("SKIPME").optional(),
                    ],
                )
                .multiple(),
            ],
        )]),
    CommandSpec::new(Id::ClientNoEvict, "client|no-evict", 3, Group::Connection)
        .doc("7.0.0", O_1, "Keeps this connection when memory for buffers is short")
        .flags(OPERATOR)
        .arguments(&[ON_OFF]),
    CommandSpec::new(Id::ClientNoTouch, "client|no-touch", 3, Group::Connection)
        .doc("7.2.0", O_1, "Leaves no trace of what this connection reads")
        .flags(ALWAYS_NO_SCRIPT)
        .arguments(&[ON_OFF]),
    CommandSpec::new(Id::ClientReply, "client|reply", 3, Group::Connection)
        .doc("3.2.0", O_1, "Turns replies on and off")
        .flags(ALWAYS_NO_SCRIPT)
        .arguments(&[Argument::one_of(
            "on_off_skip",
            &[
                Argument::word("on", "ON"),
                Argument::word("off", "OFF"),
                Argument::word("skip", "SKIP"),
            ],
        )]),
    CommandSpec::new(Id::ClientHelp, "client|help", 2, Group::Connection)
        .doc("5.0.0", O_1, "Prints this help")
        .flags(ALWAYS),
];
