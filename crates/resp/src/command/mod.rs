//! The commands of a server: one table, and everything that can be answered from it.
//!
//! A server [`resolve`]s a request to its [`CommandSpec`], and runs the command with its [`CommandId`]; that code is
//! not here. [`answer_command`] and [`write_help`] answer requests about commands.

mod alternative;
mod answer;
mod argument;
mod describe;
mod document;
mod find;
mod flags;
mod help;
mod id;
mod keys;
mod refusal;
mod spec;
mod table;

pub use answer::answer_command;
pub use argument::{Argument, ArgumentKind};
pub use find::{all, find, find_by_full_name};
pub use flags::{Categories, Flags, KeyAccess};
pub use help::write_help;
pub use id::CommandId;
pub use keys::KeySpec;
pub use refusal::{
    argument_count_error, is_http, quoted, resolve, subcommand_argument_error, unknown_command_error,
    unknown_subcommand_error,
};
pub use spec::{CommandSpec, Deprecation, Group};
