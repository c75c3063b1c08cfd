//! Sets of named properties: what a command does, which users may run it, and how it accesses a key.
//!
//! The names and their order are those of Redis.

/// Declares a set of named bits; the names are listed in the order of Redis.
macro_rules! named_bits {
    ($(#[$about:meta])* $set:ident: $bits:ty { $($(#[$doc:meta])* $flag:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $set($bits);

        impl $set {
            /// The empty set.
            pub const NONE: Self = Self(0);
            named_bits!(@bits $bits, 0, $($(#[$doc])* $flag,)*);
            const NAMES: &'static [&'static str] = &[$($name),*];

            /// The union of both sets.
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether this set contains all of `other`.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The names in this set, in the order of Redis.
            pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
                let named = Self::NAMES.iter().enumerate();
                named.filter(move |&(bit, _)| self.0 >> bit & 1 == 1).map(|(_, &name)| name)
            }

            /// The names of all members, in the order of Redis.
            pub fn all_names() -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().copied()
            }

            /// The set with the single member of this name.
            pub fn from_name(name: &[u8]) -> Option<Self> {
                let mut named = Self::NAMES.iter();
                let bit = named.position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
                Some(Self(1 << bit))
            }
        }
    };
    (@bits $bits:ty, $bit:expr, ) => {};
    (@bits $bits:ty, $bit:expr, $(#[$doc:meta])* $flag:ident, $($rest:tt)*) => {
        $(#[$doc])*
        pub const $flag: Self = Self(1 << ($bit));
        named_bits!(@bits $bits, $bit + 1, $($rest)*);
    };
}

named_bits! {
    /// Properties of a command: its effect on data, and when it may run.
    Flags: u16 {
        /// Changes data.
        WRITE = "write",
        /// Reads data.
        READONLY = "readonly",
        /// May need more memory.
        DENY_OOM = "denyoom",
        /// For operators.
        ADMIN = "admin",
        /// Not from scripts.
        NO_SCRIPT = "noscript",
        /// While data is being loaded.
        LOADING = "loading",
        /// On a replica whose data is old.
        STALE = "stale",
        /// Not recorded in the slow log.
        SKIP_SLOWLOG = "skip_slowlog",
        /// Takes constant time, or near it.
        FAST = "fast",
        /// Before authentication.
        NO_AUTH = "no_auth",
        /// While a script is stuck.
        ALLOW_BUSY = "allow_busy",
    }
}

named_bits! {
    /// The access categories of a command.
    Categories: u16 {
        /// Works on keys of any type.
        KEYSPACE = "keyspace",
        /// Reads data.
        READ = "read",
        /// Changes data.
        WRITE = "write",
        /// Works on strings.
        STRING = "string",
        /// Works on sets.
        SET = "set",
        /// For operators.
        ADMIN = "admin",
        /// Takes constant time, or near it.
        FAST = "fast",
        /// Not fast.
        SLOW = "slow",
        /// To be granted with care.
        DANGEROUS = "dangerous",
        /// About the connection.
        CONNECTION = "connection",
        /// Runs other commands together.
        TRANSACTION = "transaction",
    }
}

named_bits! {
    /// The effect of a command on one of its keys.
    KeyAccess: u16 {
        /// Only reads the key.
        RO = "RO",
        /// Reads and writes the key.
        RW = "RW",
        /// Overwrites the key.
        OW = "OW",
        /// Removes the key.
        RM = "RM",
        /// Returns something of the value.
        ACCESS = "access",
        /// Changes the value.
        UPDATE = "update",
        /// Adds to the value, and changes nothing else.
        INSERT = "insert",
        /// Removes the value.
        DELETE = "delete",
        /// Depends on the arguments.
        VARIABLE = "variable_flags",
    }
}
