//! Properties of a command that are known before it runs.
//!
//! Plain data in the terms of Redis, so that clients which read `COMMAND` route and complete as with Redis. The server
//! implements the commands.

use super::{Argument, Categories, CommandId, Flags, KeySpec};

/// A command, or the subcommand of one.
#[derive(Debug, Clone, Copy)]
pub struct CommandSpec {
    /// The identifier.
    pub id: CommandId,
    /// The name in lower case; for a subcommand `container|subcommand`.
    pub name: &'static str,
    /// The number of arguments, including all names; if negative, the minimum number.
    pub arity: i32,
    /// Its effect on data, and when it may run.
    pub flags: Flags,
    /// Its group in the documentation.
    pub group: Group,
    /// Its access categories without those that follow from the flags. See [`CommandSpec::categories`].
    pub own_categories: Categories,
    /// The positions of its keys.
    pub keys: &'static [KeySpec],
    /// Hints for clients and proxies, in the terms of Redis.
    pub tips: &'static [&'static str],
    /// A one-line summary for people.
    pub summary: &'static str,
    /// The version of Redis that introduced it.
    pub since: &'static str,
    /// The cost of running it.
    pub complexity: &'static str,
    /// Its replacement, if it is deprecated.
    pub deprecation: Option<Deprecation>,
    /// Its arguments, after the names.
    pub arguments: &'static [Argument],
    /// Its subcommands.
    pub subcommands: &'static [CommandSpec],
}

impl CommandSpec {
    /// A command without keys, flags, arguments and documentation.
    pub(super) const fn new(id: CommandId, name: &'static str, arity: i32, group: Group) -> Self {
        Self {
            id,
            name,
            arity,
            flags: Flags::NONE,
            group,
            own_categories: match group {
                Group::String => Categories::STRING,
                Group::Set => Categories::SET,
                Group::Generic => Categories::KEYSPACE,
                Group::Connection => Categories::CONNECTION,
                Group::Transactions => Categories::TRANSACTION,
                Group::Server | Group::Cluster | Group::Own => Categories::NONE,
            },
            keys: &[],
            tips: &[],
            summary: "",
            since: "",
            complexity: "",
            deprecation: None,
            arguments: &[],
            subcommands: &[],
        }
    }

    pub(super) const fn doc(mut self, since: &'static str, complexity: &'static str, summary: &'static str) -> Self {
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self
    }

    pub(super) const fn flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    pub(super) const fn categories_are(mut self, categories: Categories) -> Self {
        self.own_categories = categories;
        self
    }

    pub(super) const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.keys = keys;
        self
    }

    pub(super) const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    pub(super) const fn arguments(mut self, arguments: &'static [Argument]) -> Self {
        self.arguments = arguments;
        self
    }

    pub(super) const fn subcommands(mut self, subcommands: &'static [CommandSpec]) -> Self {
        self.subcommands = subcommands;
        self
    }

    pub(super) const fn deprecated(mut self, since: &'static str, replaced_by: &'static str) -> Self {
        self.deprecation = Some(Deprecation { since, replaced_by });
        self
    }

    /// Whether a request with `argument_count` arguments, including all names, can be this command.
    #[inline]
    pub const fn accepts(&self, argument_count: usize) -> bool {
        let named = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            argument_count >= named
        } else {
            argument_count == named
        }
    }

    /// All its access categories, including those that follow from its flags.
    pub const fn categories(&self) -> Categories {
        let mut all = self.own_categories;
        if self.flags.contains(Flags::WRITE) {
            all = all.and(Categories::WRITE);
        }
        if self.flags.contains(Flags::READONLY) {
            all = all.and(Categories::READ);
        }
        if self.flags.contains(Flags::ADMIN) {
            all = all.and(Categories::ADMIN).and(Categories::DANGEROUS);
        }
        all.and(if self.flags.contains(Flags::FAST) {
            Categories::FAST
        } else {
            Categories::SLOW
        })
    }

    /// The subcommand with this name; the case is ignored.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static CommandSpec> {
        self.subcommands
            .iter()
            .find(|subcommand| subcommand.last_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The name without that of the container.
    pub fn last_name(&self) -> &'static str {
        self.name.rsplit_once('|').map_or(self.name, |(_, last)| last)
    }
}

/// When a command was deprecated, and what to use instead.
#[derive(Debug, Clone, Copy)]
pub struct Deprecation {
    /// The version of Redis.
    pub since: &'static str,
    /// The command to use.
    pub replaced_by: &'static str,
}

/// The group of a command in the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// String values.
    String,
    /// Keys, independent of their values.
    Generic,
    /// The connection.
    Connection,
    /// Sets of ids.
    Set,
    /// Transactions.
    Transactions,
    /// The server.
    Server,
    /// The cluster.
    Cluster,
    /// Commands that Redis does not have.
    Own,
}

impl Group {
    /// Its name in `COMMAND DOCS`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Generic => "generic",
            Self::Connection => "connection",
            Self::Set => "set",
            Self::Transactions => "transactions",
            Self::Server => "server",
            Self::Cluster => "cluster",
            // Redis uses this name for commands that are not its own.
            Self::Own => "module",
        }
    }
}
