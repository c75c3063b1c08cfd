//! The options of stores: the table of all, and the macro that declares them.
//!
//! An option is declared once, in [`store_options!`], beside the settings that it belongs to: of all stores
//! ([`crate::StoreDefinition`]), of the streams of hybrid stores ([`crate::StreamSettings`]), or of versioned stores
//! ([`crate::versioned::VersionedSettings`]). The declaration gives the member of the record, the member of the JSON documents that
//! create, change and show a store, the flag at the command line, its bounds, the kinds of store that have it, and its
//! description in the help, in the OpenAPI document and in the manual.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::definition::{StoreDefinition, StoreKind};
use crate::stream::StreamSettings;
use crate::versioned::VersionedSettings;

/// An option of a store.
#[derive(Debug, Clone)]
pub struct StoreOption {
    /// The name at the command line, without the dashes.
    pub name: &'static str,
    /// The member of a document for each kind that has the option.
    pub(crate) members: [Option<&'static str>; 3],
    /// Its possible values.
    pub value: OptionValue,
    /// The word at the command line for no value, if it can be taken back: `0` is a number in documents too, and other words
    /// are null there.
    pub none: Option<&'static str>,
    /// Whether it can be given only when a store is created.
    pub is_fixed: bool,
    /// Its description: a sentence, or two.
    pub(crate) help: &'static str,
}

/// The possible values of an option.
#[derive(Debug, Clone, Copy)]
pub enum OptionValue {
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// A number of bytes, from the first to the second.
    Bytes(u64, u64),
    /// A time, in milliseconds from the first to the second.
    Time(u64, u64),
    /// True or false.
    Bool,
    /// One of some words, and the name for such a word.
    Word(&'static str, &'static [&'static str]),
    /// A text that a function accepts, and the name for such a text.
    Text(&'static str, fn(&str) -> Result<(), String>),
}

impl OptionValue {
    /// Any number that fits into 32 bits, from this one.
    pub(crate) const fn count_from(least: u64) -> Self {
        Self::Count(least, u32::MAX as u64)
    }

    /// A text that can be parsed.
    pub(crate) const fn text<T: FromStr<Err: fmt::Display>>(name: &'static str) -> Self {
        Self::Text(name, |text| match text.parse::<T>() {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// The bounds of a number; the upper one only if it is not that of the type.
    pub fn bounds(&self) -> Option<(u64, Option<u64>)> {
        match *self {
            Self::Count(least, most) | Self::Bytes(least, most) | Self::Time(least, most) => {
                let is_bound = most != u64::MAX && most != u64::from(u32::MAX);
                Some((least, is_bound.then_some(most)))
            }
            Self::Bool | Self::Word(..) | Self::Text(..) => None,
        }
    }

    /// Checks a value of a document.
    ///
    /// # Errors
    /// The remedy, if it is not a possible one.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        match *self {
            Self::Count(least, most) | Self::Bytes(least, most) | Self::Time(least, most) => match value.as_u64() {
                Some(number) if (least..=most).contains(&number) => Ok(()),
                _ => Err(format!("use a whole number from {least} to {most}")),
            },
            Self::Bool if value.is_boolean() => Ok(()),
            Self::Bool => Err("use true or false".to_owned()),
            Self::Word(_, words) if value.as_str().is_some_and(|word| words.contains(&word)) => Ok(()),
            Self::Word(_, words) => Err(format!("use one of {}", words.join(", "))),
            Self::Text(_, check) => value.as_str().map_or_else(|| Err("use a text".to_owned()), check),
        }
    }
}

/// Declares a group of options: the struct of a record that holds them, the struct of a change of them, in which each may be
/// missing, and their rows of the table.
///
/// An option is `"flag" member: type of the record [attributes of the record], possible values, [kinds]`; then `or "word"` if it can
/// be taken back, and `=> fixed` if it cannot be changed.
macro_rules! store_options {
    (
        $(#[$record_attribute:meta])*
        record $record:ident { $($(#[$own_attribute:meta])* $own:ident: $own_type:ty,)* }
        $(#[$change_attribute:meta])*
        change $change:ident $prefix:literal { $($(#[$part_attribute:meta])* $part:ident: $part_type:ty,)* }
        $(
            $(#[doc = $help:literal])+
            $flag:literal $field:ident: $type:ty $([$($stored:meta),+])?,
            $value:expr, [$($kind:ident),+] $(or $none:literal)? $(=> $fixed:ident)?;
        )*
    ) => {
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $(#[$record_attribute])*
        pub struct $record {
            $($(#[$own_attribute])* pub $own: $own_type,)*
            $($(#[doc = $help])+ $($(#[$stored])+)? pub $field: $type,)*
        }

        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $(#[$change_attribute])*
        pub struct $change {
            $(
                $(#[doc = $help])+
                #[serde(
                    default,
                    skip_serializing_if = "Option::is_none",
                    deserialize_with = "crate::store_option::given"
                )]
                pub $field: Option<$type>,
            )*
            $($(#[$part_attribute])* pub $part: $part_type,)*
        }

        impl $change {
            /// All options, as a store has them.
            pub fn of(settings: &$record) -> Self {
                Self { $($field: Some(Clone::clone(&settings.$field)),)* $($part: None,)* }
            }
        }

        impl $record {
            pub(crate) const OPTIONS: &'static [crate::store_option::StoreOption] = {
                use crate::definition::StoreKind::*;
                use crate::store_option::{OptionValue::*, *};
                &[$(StoreOption {
                    name: $flag,
                    members: members(concat!($prefix, stringify!($field)), &[$($kind),+]),
                    value: $value,
                    none: first(&[$($none)?]),
                    is_fixed: first(&[$(stringify!($fixed))?]).is_some(),
                    help: concat!($($help),+),
                }),*]
            };

            /// Makes a change of options; those that are missing stay.
            pub fn apply(&mut self, change: &$change) {
                $(if let Some(value) = &change.$field {
                    self.$field = Clone::clone(value);
                })*
            }
        }
    };
}

pub(crate) use store_options;

/// The same member for some kinds.
pub(crate) const fn members(member: &'static str, kinds: &[StoreKind]) -> [Option<&'static str>; 3] {
    let mut members = [None; 3];
    let mut at = 0;
    while at < kinds.len() {
        members[kinds[at] as usize] = Some(member);
        at += 1;
    }
    members
}

/// The word, if there is one.
pub(crate) const fn first(words: &[&'static str]) -> Option<&'static str> {
    match words {
        [word, ..] => Some(*word),
        [] => None,
    }
}

/// A member that is present, though it may be null.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl StoreOption {
    /// All options. One that two groups declare with the same flag is one option, with a member for each kind.
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<StoreOption>> = LazyLock::new(|| {
            let groups = [
                StoreDefinition::OPTIONS,
                VersionedSettings::OPTIONS,
                StreamSettings::OPTIONS,
            ];
            let mut all: Vec<StoreOption> = Vec::new();
            for option in groups.into_iter().flatten() {
                match all.iter_mut().find(|known| known.name == option.name) {
                    Some(known) => {
                        for (member, other) in known.members.iter_mut().zip(option.members) {
                            *member = member.or(other);
                        }
                    }
                    None => all.push(option.clone()),
                }
            }
            all
        });
        &ALL
    }

    /// The option that is this member of a document.
    pub fn of_member(member: &str) -> Option<&'static Self> {
        Self::all().iter().find(|option| option.members.contains(&Some(member)))
    }

    /// The member of a document for a store of this kind, if the kind has the option.
    pub fn member(&self, kind: StoreKind) -> Option<&'static str> {
        self.members[kind as usize]
    }

    /// Its members of documents, in the order of the kinds.
    pub fn members(&self) -> impl Iterator<Item = &'static str> {
        self.members.into_iter().flatten()
    }

    /// The kinds that have the option, in words: `batch and hybrid`.
    pub fn kinds(&self) -> String {
        let kinds = StoreKind::ALL.iter().filter(|&&kind| self.member(kind).is_some());
        let kinds: Vec<&str> = kinds.map(|kind| kind.as_str()).collect();
        kinds.join(" and ")
    }

    /// Whether not all kinds have the option.
    pub fn is_special(&self) -> bool {
        self.members.contains(&None)
    }

    /// Its description, without a full stop.
    pub fn help(&self) -> &'static str {
        self.help.trim().trim_end_matches('.')
    }

    /// Puts a value into a document, as a member such as `stream.rewind_ms`.
    pub fn put(document: &mut Map<String, Value>, member: &str, value: Value) {
        match member.split_once('.') {
            None => document.insert(member.to_owned(), value),
            Some((part, member)) => {
                let part = document.entry(part).or_insert_with(|| Value::Object(Map::new()));
                part.as_object_mut()
                    .and_then(|part| part.insert(member.to_owned(), value))
            }
        };
    }
}
