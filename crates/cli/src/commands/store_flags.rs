//! The flags of `fondaco store create` and `alter`: one for each option of the table.

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use fondaco_model::{OptionValue, StoreKind, StoreOption};
use serde_json::{Map, Value};

use super::build::parse_bytes;
use crate::output;

/// The options that were given: of a new store if `IS_NEW`, or to change.
#[derive(Debug, Clone)]
pub struct StoreFlags<const IS_NEW: bool>(Vec<(&'static StoreOption, Value)>);

impl<const IS_NEW: bool> StoreFlags<IS_NEW> {
    /// Whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members of a document for a store of this kind. The store refuses those that its kind does not have.
    pub fn document(self, kind: StoreKind) -> Map<String, Value> {
        let mut document = Map::new();
        for (option, value) in self.0 {
            if let Some(member) = option.member(kind).or(option.members().next()) {
                StoreOption::put(&mut document, member, value);
            }
        }
        document
    }
}

impl<const IS_NEW: bool> Args for StoreFlags<IS_NEW> {
    fn augment_args(command: Command) -> Command {
        command.args(StoreOption::all().iter().map(|option| flag(option, IS_NEW)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const IS_NEW: bool> FromArgMatches for StoreFlags<IS_NEW> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |option: &'static StoreOption| Some((option, matches.get_one::<Value>(option.name)?.clone()));
        Ok(Self(StoreOption::all().iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag of an option. One that cannot be changed is hidden where stores are changed: the store refuses it by name.
fn flag(option: &'static StoreOption, is_new: bool) -> Arg {
    let name = match option.value {
        OptionValue::Count(..) => "COUNT",
        OptionValue::Bytes(..) => "BYTES",
        OptionValue::Time(..) => "DURATION",
        OptionValue::Bool => "BOOL",
        OptionValue::Word(name, _) | OptionValue::Text(name, _) => name,
    };
    let only = match option.is_special() {
        true => format!(" [only {} stores]", option.kinds()),
        false => String::new(),
    };
    let mut flag = Arg::new(option.name)
        .long(option.name)
        .value_name(name)
        .help(format!("{}{only}", option.help()))
        .value_parser(move |text: &str| parse(option, text))
        .hide(option.is_fixed && !is_new);
    let members: Vec<&str> = option.members().collect();
    let is_of = |part: &str| members.iter().all(|member| member.starts_with(part));
    if is_of("stream.") {
        flag = flag.help_heading("Options for hybrid stores");
        if is_new && option.name != "stream" {
            flag = flag.requires("stream");
        }
    } else if members.iter().any(|member| member.starts_with("versioned.")) {
        flag = flag.help_heading("Options for versioned stores");
    }
    if let OptionValue::Bool = option.value {
        flag = flag.num_args(0..=1).default_missing_value("true");
    }
    if option.name == "everywhere" {
        flag = flag.conflicts_with("replicas");
    }
    flag
}

/// Parses the value of a flag into that of a document's member.
fn parse(option: &StoreOption, text: &str) -> Result<Value, String> {
    if option.none == Some(text) {
        return Ok(text.parse::<u64>().map_or(Value::Null, Value::from));
    }
    let value = match option.value {
        OptionValue::Count(..) => text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
        OptionValue::Bytes(..) => parse_bytes(text)?.into(),
        OptionValue::Time(..) => output::parse_span_ms(text)?.into(),
        OptionValue::Bool => text.parse::<bool>().map_or_else(|_| Value::from(text), Value::from),
        OptionValue::Word(..) | OptionValue::Text(..) => text.into(),
    };
    let or_none = |remedy: String| match option.none {
        Some(none) => format!("{remedy}, or {none}"),
        None => remedy,
    };
    option.value.check(&value).map_err(or_none)?;
    Ok(value)
}
