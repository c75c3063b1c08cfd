//! The table of all commands, one file per family.
//!
//! Arity, flags, keys, categories and tips are those of Redis 7.0, and a test compares them with a real server; the
//! texts are our own. To add a command: add a line to [`CommandId`](super::CommandId), and an entry to the file of its
//! family.

mod cluster;
mod connection;
mod graph;
mod monitor;
mod own;
mod read;
mod replica;
mod server;
mod sets;
mod transactions;
mod versioned;
mod write_keys;
mod write_strings;

use super::CommandId as Id;
use super::{Argument, Categories, CommandSpec, Flags, Group, KeyAccess, KeySpec};

/// All commands, one list per family. Subcommands are in their containers.
pub(super) const FAMILIES: [&[CommandSpec]; 13] = [
    read::COMMANDS,
    write_strings::COMMANDS,
    write_keys::COMMANDS,
    connection::COMMANDS,
    transactions::COMMANDS,
    server::COMMANDS,
    monitor::COMMANDS,
    cluster::COMMANDS,
    own::COMMANDS,
    sets::COMMANDS,
    graph::COMMANDS,
    versioned::COMMANDS,
    replica::COMMANDS,
];

const KEY: Argument = Argument::key("key", 0);

/// Redis does not have these commands: the version is that of fondaco.
const SINCE: &str = "0.1.0";

const O_1: &str = "O(1)";
const O_KEYS: &str = "O(N), N being the number of keys";
const O_BYTES: &str = "O(N), N being the number of bytes";
const O_SCAN: &str = "O(1) per call, O(N) for all N keys";
const O_SUBCOMMAND: &str = "depends on the subcommand";
const O_COMMANDS: &str = "O(N), N being the number of commands";
const O_NAMES: &str = "O(N), N being the number of names";
const O_NODES: &str = "O(N), N being the number of nodes";
const O_ALL_KEYS: &str = "O(N), N being the number of all keys";
const O_CONNECTIONS: &str = "O(N), N being the number of connections";
const O_ARGUMENTS: &str = "O(N), N being the number of arguments";
const O_SETTINGS: &str = "O(N), N being the number of settings";
const O_REQUESTS: &str = "O(N), N being the number of stored requests";
const O_USERS: &str = "O(N), N being the number of users";
