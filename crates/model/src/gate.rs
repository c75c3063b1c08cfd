//! Gates: the conditions that a pushed version must meet before it goes live, and the counts that they are held against.
//!
//! Their text is `records -10%..+50%; gone <= 5%`. Shares are exact: percents have at most three decimals, and are compared as
//! whole numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text_form::stored_as_text;
use crate::version::VersionNumber;

/// The gates of a store or of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Gates(Vec<Gate>);

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// How much the number of records may differ from that of the current version.
    Records(Bounds),
    /// How much the size of all files may differ from that of the current version.
    Bytes(Bounds),
    /// The share of the current version's keys that the new one lacks.
    Gone(Percent),
    /// The share of the new version's keys that the current one lacks.
    New(Percent),
    /// The share of the current version's keys that have another value in the new one.
    Changed(Percent),
    /// The share of the new version's records whose value lacks this field, or has a null there.
    Nulls(String, Percent),
    /// The version is held, even if it passes all others, until the checks of the pushing program or an operator confirm it.
    Confirm,
}

/// The least and the greatest change; either may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    least: Option<Percent>,
    most: Option<Percent>,
}

/// A number of percents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    /// In thousandths of a percent.
    thousandths: i64,
}

/// The text is no list of gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid gate {gate:?}: {remedy}")]
pub struct GateError {
    gate: String,
    remedy: String,
}

impl Gates {
    /// The most gates of a list.
    pub const MAX: usize = 16;

    /// Whether the list has no gate.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Gate> {
        self.0.iter()
    }

    /// These gates and others, each once.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        let mut all = self.0.clone();
        let new = others.0.iter().filter(|gate| !self.0.contains(gate));
        all.extend(new.cloned());
        Self(all)
    }

    /// These gates, and a confirmation.
    #[must_use]
    pub fn with_confirmation(&self) -> Self {
        self.with(&Self(vec![Gate::Confirm]))
    }

    /// The fields whose nulls have to be counted.
    pub fn null_fields(&self) -> Vec<String> {
        let field = |gate: &Gate| match gate {
            Gate::Nulls(field, _) => Some(field.clone()),
            _ => None,
        };
        self.0.iter().filter_map(field).collect()
    }

    /// Whether the version has to be confirmed.
    pub fn need_confirmation(&self) -> bool {
        self.0.contains(&Gate::Confirm)
    }
}

impl Gate {
    /// Whether the nodes have to compare the keys and values of both versions for it.
    pub fn needs_counts(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::New(_) | Self::Changed(_) | Self::Nulls(..))
    }

    /// Whether the gate lets a version pass, but for its confirmation. Shares are of the keys of the former version, but those of new keys of the later one.
    pub fn allows(&self, records: (u64, u64), bytes: (u64, u64), counts: &DiffCounts) -> bool {
        match self {
            Self::Records(bounds) => bounds.allow(records.0, records.1),
            Self::Bytes(bounds) => bounds.allow(bytes.0, bytes.1),
            Self::Gone(share) => share.allows(counts.gone, counts.keys_before),
            Self::New(share) => share.allows(counts.new, counts.keys_after),
            Self::Changed(share) => share.allows(counts.changed, counts.keys_before),
            Self::Nulls(field, share) => share.allows(counts.nulls_of(field), counts.keys_after),
            Self::Confirm => true,
        }
    }
}

impl Bounds {
    /// Whether a change from `before` to `after` is within the bounds. Nothing can be said of a change from 0.
    pub fn allow(self, before: u64, after: u64) -> bool {
        let change = (i128::from(after) - i128::from(before)) * Percent::WHOLE;
        let at = |percent: Percent| i128::from(percent.thousandths) * i128::from(before);
        before == 0
            || self.least.is_none_or(|least| at(least) <= change) && self.most.is_none_or(|most| change <= at(most))
    }
}

impl Percent {
    /// A hundred percent, in thousandths.
    const WHOLE: i128 = 100_000;

    /// Whether `count` of `total` are at most this share.
    pub fn allows(self, count: u64, total: u64) -> bool {
        i128::from(count) * Self::WHOLE <= i128::from(self.thousandths) * i128::from(total)
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no percentage: write 5%, 0.5% or -10%");
        let number = text.strip_suffix('%').ok_or_else(refuse)?.trim();
        let (sign, number) = match number.split_at_checked(1) {
            Some(("-", rest)) => (-1, rest),
            Some(("+", rest)) => (1, rest),
            _ => (1, number),
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || whole.len() > 9 || decimals.len() > 3 {
            return Err(refuse());
        }
        let parse = |text: &str| text.parse::<i64>().map_err(|_| refuse());
        let thousandths = parse(whole)? * 1000 + parse(&format!("{decimals:0<3}"))?;
        Ok(Self {
            thousandths: sign * thousandths,
        })
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.thousandths < 0 { "-" } else { "" };
        let (whole, rest) = (self.thousandths.abs() / 1000, self.thousandths.abs() % 1000);
        let decimals = format!(".{rest:03}");
        let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{sign}{whole}{decimals}%")
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} are no bounds: write -10%..+50%, -10%.. or ..+50%");
        let (least, most) = text.split_once("..").ok_or_else(refuse)?;
        let side = |text: &str| match text.trim() {
            "" => Ok(None),
            text => text.parse::<Percent>().map(Some),
        };
        let bounds = Self {
            least: side(least)?,
            most: side(most)?,
        };
        match (bounds.least, bounds.most) {
            (None, None) => Err(refuse()),
            (Some(least), Some(most)) if least > most => Err(format!("{least} is more than {most}")),
            _ => Ok(bounds),
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |percent: Option<Percent>| match percent {
            Some(percent) if percent.thousandths > 0 => format!("+{percent}"),
            Some(percent) => percent.to_string(),
            None => String::new(),
        };
        write!(f, "{}..{}", side(self.least), side(self.most))
    }
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let text = text.trim();
        let refuse = |remedy: String| GateError {
            gate: text.chars().take(80).collect(),
            remedy,
        };
        let known = "write records -10%..+50%, bytes -10%..+50%, gone <= 5%, new <= 5%, changed <= 5%, nulls(FIELD) <= 1% or confirm";
        let share = |text: &str| -> Result<Percent, GateError> {
            let limit = text.trim().strip_prefix("<=");
            let limit = limit.ok_or_else(|| refuse("a share has a limit, such as <= 5%".to_owned()))?;
            let limit: Percent = limit.trim().parse().map_err(refuse)?;
            match (0..=Percent::WHOLE).contains(&i128::from(limit.thousandths)) {
                true => Ok(limit),
                false => Err(refuse(format!("a share is between 0% and 100%, not {limit}"))),
            }
        };
        let bounds = |text: &str| text.trim().parse::<Bounds>().map_err(refuse);
        if let Some(rest) = text.strip_prefix("nulls(") {
            let parts = rest.rsplit_once(')').map(|(field, rest)| (field.trim(), rest));
            let named = parts.filter(|(field, _)| !field.is_empty());
            let (field, rest) = named.ok_or_else(|| refuse("name a field: nulls(age) <= 1%".to_owned()))?;
            return Ok(Self::Nulls(field.to_owned(), share(rest)?));
        }
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        match word {
            "records" => bounds(rest).map(Self::Records),
            "bytes" => bounds(rest).map(Self::Bytes),
            "gone" => share(rest).map(Self::Gone),
            "new" => share(rest).map(Self::New),
            "changed" => share(rest).map(Self::Changed),
            "confirm" if rest.is_empty() => Ok(Self::Confirm),
            _ => Err(refuse(known.to_owned())),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(bounds) => write!(f, "records {bounds}"),
            Self::Bytes(bounds) => write!(f, "bytes {bounds}"),
            Self::Gone(limit) => write!(f, "gone <= {limit}"),
            Self::New(limit) => write!(f, "new <= {limit}"),
            Self::Changed(limit) => write!(f, "changed <= {limit}"),
            Self::Nulls(field, limit) => write!(f, "nulls({field}) <= {limit}"),
            Self::Confirm => f.write_str("confirm"),
        }
    }
}

impl FromStr for Gates {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let gates: Vec<Gate> = text.split(';').map(str::parse).collect::<Result<_, _>>()?;
        match gates.len() <= Self::MAX {
            true => Ok(Self(gates)),
            false => Err(GateError {
                gate: text.chars().take(80).collect(),
                remedy: format!("a list has at most {} gates", Self::MAX),
            }),
        }
    }
}

impl fmt::Display for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gates: Vec<String> = self.0.iter().map(Gate::to_string).collect();
        f.write_str(&gates.join("; "))
    }
}

stored_as_text!(Gates, GateError);

/// The comparison of a pushed version with the one that was current.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateReport {
    /// The former version: a comparison with another one says nothing.
    pub from: VersionNumber,
    /// The sums of all nodes.
    pub counts: DiffCounts,
    /// Why the versions could not be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The differences between two versions, or between partitions of them, as numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DiffCounts {
    /// How many keys the former version has.
    pub keys_before: u64,
    /// How many keys the later version has.
    pub keys_after: u64,
    /// The bytes of the former version's records, as they are stored.
    pub bytes_before: u64,
    /// The bytes of the later version's records, as they are stored.
    pub bytes_after: u64,
    /// How many keys only the former version has.
    pub gone: u64,
    /// How many keys only the later version has.
    pub new: u64,
    /// How many keys have different values.
    pub changed: u64,
    /// How many keys have the same value in both.
    pub equal: u64,
    /// For each field, in how many of these values it differs; empty if the values have no fields.
    #[serde(default)]
    pub fields: BTreeMap<String, u64>,
    /// For each field that was asked for: in how many records of the later version it is absent or null.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulls: BTreeMap<String, u64>,
    /// Some of the keys that are gone, as text.
    #[serde(default)]
    pub gone_keys: Vec<String>,
    /// Some of the keys that are new.
    #[serde(default)]
    pub new_keys: Vec<String>,
    /// Some of the keys whose values differ.
    #[serde(default)]
    pub changed_keys: Vec<String>,
}

impl DiffCounts {
    /// The most fields that are counted: the differences of others are counted as of the field `…`.
    pub const FIELDS_MAX: usize = 200;
    /// The most sample keys of a kind.
    pub const SAMPLES_MAX: usize = 5;

    /// Counts a difference in a field.
    pub fn count_field(&mut self, field: &str, by: u64) {
        let is_known = self.fields.contains_key(field) || self.fields.len() < Self::FIELDS_MAX;
        let field = if is_known { field } else { "…" };
        *self.fields.entry(field.to_owned()).or_default() += by;
    }

    /// In how many records of the later version a field is absent or null: in all, if they were not counted.
    fn nulls_of(&self, field: &str) -> u64 {
        self.nulls.get(field).copied().unwrap_or(self.keys_after)
    }

    /// Adds the counts of other partitions.
    pub fn add(&mut self, other: Self) {
        self.keys_before += other.keys_before;
        self.keys_after += other.keys_after;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
        self.gone += other.gone;
        self.new += other.new;
        self.changed += other.changed;
        for (field, count) in other.fields {
            self.count_field(&field, count);
        }
        for (field, count) in other.nulls {
            *self.nulls.entry(field).or_default() += count;
        }
        let kinds = [
            (&mut self.gone_keys, other.gone_keys),
            (&mut self.new_keys, other.new_keys),
            (&mut self.changed_keys, other.changed_keys),
        ];
        for (keys, more) in kinds {
            keys.extend(more);
            keys.truncate(Self::SAMPLES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_back() {
        let text =
            "records -10%..+50%; bytes ..+0.5%; gone <= 5%; new <= 100%; changed <= 0.125%; nulls(a b) <= 1%; confirm";
        let gates: Gates = text.parse().unwrap();
        assert_eq!(gates.to_string(), text);
        assert_eq!(gates.with(&gates), gates);
        assert_eq!(gates.null_fields(), ["a b"]);
        assert_eq!("gone<=5%".parse::<Gates>().unwrap().to_string(), "gone <= 5%");
    }

    #[test]
    fn a_wrong_gate_is_named_with_its_fault() {
        for (text, expected) in [
            ("", "write records"),
            ("gone <= 5%;", "write records"),
            ("lost <= 5%", "write records"),
            ("confirm <= 5%", "or confirm"),
            ("nulls() <= 5%", "name a field"),
            ("nulls(age <= 5%", "name a field"),
            ("nulls <= 5%", "write records"),
            ("gone < 5%", "<= 5%"),
            ("gone <= 5", "no percentage"),
            ("gone <= 1.2345%", "no percentage"),
            ("gone <= 101%", "between 0% and 100%"),
            ("gone <= -1%", "between 0% and 100%"),
            ("records 10%", "no bounds"),
            ("records ..", "no bounds"),
            ("records +5%..-5%", "more than"),
        ] {
            let error = text.parse::<Gates>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let many = vec!["gone <= 5%"; Gates::MAX + 1].join(";");
        assert!(many.parse::<Gates>().is_err());
    }

    #[test]
    fn shares_and_bounds_are_exact() {
        let share: Percent = "0.1%".parse().unwrap();
        assert!(share.allows(1, 1000) && !share.allows(2, 1000) && share.allows(0, 0));
        let bounds: Bounds = "-10%..+50%".parse().unwrap();
        for (after, allowed) in [(90, true), (89, false), (150, true), (151, false), (u64::MAX, false)] {
            assert_eq!(bounds.allow(100, after), allowed, "{after}");
        }
        assert!(bounds.allow(0, 7));
    }

    #[test]
    fn counts_add_up_within_their_limits() {
        let mut sum = DiffCounts::default();
        for partition in 0..3 {
            let mut counts = DiffCounts {
                gone: 2,
                gone_keys: vec![format!("{partition}-a"), format!("{partition}-b")],
                ..DiffCounts::default()
            };
            (0..DiffCounts::FIELDS_MAX).for_each(|field| counts.count_field(&format!("{partition}-{field}"), 1));
            sum.add(counts);
        }
        assert_eq!((sum.gone, sum.gone_keys.len()), (6, DiffCounts::SAMPLES_MAX));
        assert_eq!(sum.fields.len(), DiffCounts::FIELDS_MAX + 1);
        assert_eq!(sum.fields["…"], 2 * DiffCounts::FIELDS_MAX as u64);
    }
}
