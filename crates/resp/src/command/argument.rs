//! Arguments as `COMMAND DOCS` describes them: for completion, hints and help, not for parsing.

/// The kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Any text.
    String,
    /// An integer.
    Integer,
    /// A number.
    Double,
    /// A key.
    Key,
    /// A glob-style pattern.
    Pattern,
    /// Seconds or milliseconds since 1970.
    UnixTime,
    /// Only the token.
    PureToken,
    /// One of several.
    OneOf,
    /// Several in a row.
    Block,
}

impl ArgumentKind {
    /// Its name in `COMMAND DOCS`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Key => "key",
            Self::Pattern => "pattern",
            Self::UnixTime => "unix-time",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// An argument, as `COMMAND DOCS` describes it.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: ArgumentKind,
    /// The index of its key specification in the command.
    pub key_spec: Option<u8>,
    /// The keyword before it, or the keyword that it consists of.
    pub token: Option<&'static str>,
    /// Whether it is optional.
    pub is_optional: bool,
    /// Whether it may be repeated.
    pub is_multiple: bool,
    /// Its parts if it is a block, or its choices.
    pub arguments: &'static [Argument],
}

impl Argument {
    pub(super) const fn new(name: &'static str, kind: ArgumentKind) -> Self {
        Self {
            name,
            kind,
            key_spec: None,
            token: None,
            is_optional: false,
            is_multiple: false,
            arguments: &[],
        }
    }

    /// A key in the command's `key_spec`-th key specification.
    pub(super) const fn key(name: &'static str, key_spec: u8) -> Self {
        let mut argument = Self::new(name, ArgumentKind::Key);
        argument.key_spec = Some(key_spec);
        argument
    }

    /// A keyword without a value.
    pub(super) const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, ArgumentKind::PureToken).after(token)
    }

    pub(super) const fn one_of(name: &'static str, choices: &'static [Argument]) -> Self {
        let mut argument = Self::new(name, ArgumentKind::OneOf);
        argument.arguments = choices;
        argument
    }

    pub(super) const fn block(name: &'static str, parts: &'static [Argument]) -> Self {
        let mut argument = Self::new(name, ArgumentKind::Block);
        argument.arguments = parts;
        argument
    }

    pub(super) const fn after(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }

    pub(super) const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    pub(super) const fn multiple(mut self) -> Self {
        self.is_multiple = true;
        self
    }
}
