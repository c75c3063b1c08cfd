//! Canaries: a new version answers a share of the reads before it becomes current, and is compared with the current one.
//!
//! Pure values: the terms of a canary, its state in the record of a push, which reads it takes, what nodes count, and whether
//! the counts exceed the bounds.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::node::NodeId;
use crate::text_form::stored_as_text;
use crate::version::VersionNumber;

/// A share, in millionths. Its text is a percentage, such as `5%` or `0.1%`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u32);

impl Share {
    /// Everything.
    pub const ALL: Self = Self(1_000_000);

    /// A share of this many percent.
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// Its millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// Whether this part of a whole is more than the share.
    pub fn is_exceeded(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(self.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

impl FromStr for Share {
    type Err = CanaryError;

    fn from_str(text: &str) -> Result<Self, CanaryError> {
        let number = text
            .strip_suffix('%')
            .and_then(|number| number.trim().parse::<f64>().ok());
        let number = number.filter(|number| (0.0..=100.0).contains(number));
        match number {
            Some(percent) => Ok(Self((percent * 10_000.0).round() as u32)),
            None => Err(CanaryError::of(
                "share",
                text,
                "use a percentage from 0% to 100%, such as 5%",
            )),
        }
    }
}

stored_as_text!(Share, CanaryError);

/// The reads that a canary takes. Its text is `5%`, `node:1,2` or `zone:east,west`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CanaryReads {
    /// Of this share of the keys, by their hash: a key is always in it, or never.
    Share(Share),
    /// Those that clients send to these nodes.
    Nodes(BTreeSet<NodeId>),
    /// Those that clients send to nodes and routers in these zones; clients of the library in these zones, too.
    Zones(BTreeSet<String>),
}

impl CanaryReads {
    /// The share of keys that a process takes for the canary, given the node that it is, if it is one, and its zone.
    pub fn share_of(&self, node: Option<NodeId>, zone: Option<&str>) -> Share {
        let is_all = match self {
            Self::Share(share) => return *share,
            Self::Nodes(nodes) => node.is_some_and(|node| nodes.contains(&node)),
            Self::Zones(zones) => zone.is_some_and(|zone| zones.contains(zone)),
        };
        if is_all { Share::ALL } else { Share::default() }
    }
}

/// Whether a key is in a share of all keys: by the XXH3 (64 bits, no seed) of the key without the name of its store.
#[inline]
pub fn is_in_share(share: Share, key: &[u8]) -> bool {
    xxh3_64(key) % u64::from(Share::ALL.0) < u64::from(share.0)
}

impl fmt::Display for CanaryReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => share.fmt(f),
            Self::Nodes(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                write!(f, "node:{}", nodes.join(","))
            }
            Self::Zones(zones) => write!(f, "zone:{}", zones.iter().cloned().collect::<Vec<_>>().join(",")),
        }
    }
}

impl FromStr for CanaryReads {
    type Err = CanaryError;

    fn from_str(text: &str) -> Result<Self, CanaryError> {
        let error = || {
            CanaryError::of(
                "canary",
                text,
                "use a share of the keys (5%), node:1,2 or zone:NAME,NAME",
            )
        };
        match text.split_once(':') {
            None => {
                let share: Share = text.parse().map_err(|_| error())?;
                (share.0 > 0).then_some(Self::Share(share)).ok_or_else(error)
            }
            Some(("node", nodes)) => {
                let nodes: Result<_, _> = nodes.split(',').map(str::parse).collect();
                nodes.map(Self::Nodes).map_err(|_| error())
            }
            Some(("zone", zones)) if zones.split(',').all(|zone| !zone.is_empty()) => {
                Ok(Self::Zones(zones.split(',').map(str::to_owned).collect()))
            }
            Some(_) => Err(error()),
        }
    }
}

stored_as_text!(CanaryReads, CanaryError);

/// The text is no canary, or no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {text:?}: {remedy}")]
pub struct CanaryError {
    what: &'static str,
    text: String,
    remedy: &'static str,
}

impl CanaryError {
    fn of(what: &'static str, text: &str, remedy: &'static str) -> Self {
        Self {
            what,
            text: text.chars().take(40).collect(),
            remedy,
        }
    }
}

/// The bounds beyond which a canary is rolled back. They are applied once enough look-ups were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CanaryBounds {
    /// The share of compared keys that only the current version may have.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "1%"))]
    pub missing: Share,
    /// The share of compared keys whose values may differ.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "100%"))]
    pub changed: Share,
    /// The share of compared keys that may fail in the new version and not in the current one.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "0.1%"))]
    pub errors: Share,
    /// The mean latency of requests to the new version, in percent of that to the current one.
    pub latency_percent: u32,
    /// How many look-ups must have been compared, and how many requests measured of each version, before a bound applies.
    pub reads_min: u64,
}

impl Default for CanaryBounds {
    fn default() -> Self {
        Self {
            missing: Share::percent(1),
            changed: Share::ALL,
            errors: Share(1_000),
            latency_percent: 300,
            reads_min: 100,
        }
    }
}

/// The terms of a canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CanaryTerms {
    /// The reads that it takes: a share of the keys, `node:1,2` or `zone:east`.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "5%"))]
    pub reads: CanaryReads,
    /// How long it runs, in milliseconds.
    #[serde(default = "CanaryTerms::default_time_ms")]
    pub time_ms: u64,
    /// The bounds beyond which it is rolled back.
    #[serde(default)]
    pub bounds: CanaryBounds,
}

impl CanaryTerms {
    /// How long a canary runs unless its push says otherwise: ten minutes, in milliseconds.
    pub const fn default_time_ms() -> u64 {
        600_000
    }
}

/// The state of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CanaryState {
    /// The nodes fetch the version.
    Waiting,
    /// It takes its share of the reads.
    Running,
    /// It takes its share of the reads, and its clock stands still.
    Paused,
    /// An operator ended it early: the version becomes current as soon as it can.
    Promoting,
    /// The version became current.
    Promoted,
    /// It was rolled back by itself, or the push failed otherwise.
    RolledBack,
    /// An operator ended it: the version never became current.
    Aborted,
}

/// An operator's request about a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CanaryAction {
    /// Stop its clock; it keeps its share of the reads.
    Pause,
    /// Continue its clock.
    Resume,
    /// End it: the version does not become current, and is deleted.
    Abort,
    /// End it: the version becomes current, whatever was counted.
    Promote,
}

/// The canary of a push, in the store's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryRecord {
    /// Its terms.
    pub terms: CanaryTerms,
    /// Its state.
    pub state: CanaryState,
    /// The current version when it began; `None` before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<VersionNumber>,
    /// Since when its clock runs, in milliseconds since 1970; `None` while that stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_ms: Option<u64>,
    /// How long it had run before that, in milliseconds.
    #[serde(default)]
    pub ran_ms: u64,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The counts of all nodes when the leader ended it.
    #[serde(default)]
    pub counts: CanaryCounts,
}

impl CanaryRecord {
    /// A canary whose version has yet to be fetched.
    pub fn new(terms: CanaryTerms) -> Self {
        Self {
            terms,
            state: CanaryState::Waiting,
            against: None,
            since_unix_ms: None,
            ran_ms: 0,
            reason: None,
            counts: CanaryCounts::default(),
        }
    }

    /// Whether its version answers reads.
    pub fn takes_reads(&self) -> bool {
        matches!(
            self.state,
            CanaryState::Running | CanaryState::Paused | CanaryState::Promoting
        )
    }

    /// How long its clock has run, in milliseconds.
    pub fn elapsed_ms(&self, now_unix_ms: u64) -> u64 {
        let since = self.since_unix_ms.map_or(0, |since| now_unix_ms.saturating_sub(since));
        self.ran_ms + since
    }

    /// Begins it, or continues its clock.
    pub fn run(&mut self, now_unix_ms: u64) {
        self.state = CanaryState::Running;
        self.since_unix_ms = Some(now_unix_ms);
    }

    /// Stops its clock, in this state.
    pub fn stop(&mut self, state: CanaryState, now_unix_ms: u64) {
        self.ran_ms = self.elapsed_ms(now_unix_ms);
        self.since_unix_ms = None;
        self.state = state;
    }
}

/// The canary of a store, for processes that read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCanary {
    /// The version that answers its reads.
    pub version: VersionNumber,
    /// The reads that it takes.
    pub reads: CanaryReads,
}

/// The counts of nodes during a canary, since their processes started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CanaryCounts {
    /// Keys that the new version answered.
    pub reads: u64,
    /// Keys that the current version answered.
    pub current_reads: u64,
    /// Keys that were looked up in both versions: those that the new version answered, as many as there was time for.
    pub compared: u64,
    /// Keys of these that only the current version has.
    pub missing: u64,
    /// Keys of these that only the new version has.
    pub added: u64,
    /// Keys of these with another value.
    pub changed: u64,
    /// Keys of these whose look-up failed in the new version, and not in the current one.
    pub errors: u64,
    /// Keys of these whose look-up failed in the current version.
    pub current_errors: u64,
    /// Measured requests to the new version.
    pub timed: u64,
    /// The sum of their latencies, in microseconds.
    pub latency_us: u64,
    /// Measured requests to the current version.
    pub current_timed: u64,
    /// The sum of their latencies, in microseconds.
    pub current_latency_us: u64,
}

impl CanaryCounts {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.current_reads += other.current_reads;
        self.compared += other.compared;
        self.missing += other.missing;
        self.added += other.added;
        self.changed += other.changed;
        self.errors += other.errors;
        self.current_errors += other.current_errors;
        self.timed += other.timed;
        self.latency_us += other.latency_us;
        self.current_timed += other.current_timed;
        self.current_latency_us += other.current_latency_us;
    }

    /// The mean latencies of the new and of the current version, in microseconds; 0 where nothing was measured.
    pub fn mean_latencies_us(&self) -> (u64, u64) {
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        (
            mean(self.latency_us, self.timed),
            mean(self.current_latency_us, self.current_timed),
        )
    }

    /// Why these counts exceed the bounds; `None` if they do not, or if there are too few.
    pub fn exceeds(&self, bounds: &CanaryBounds) -> Option<String> {
        let compared = self.compared;
        if compared >= bounds.reads_min.max(1) {
            let parts = [
                (bounds.missing, self.missing, "are missing in it"),
                (bounds.changed, self.changed, "have another value in it"),
                (bounds.errors, self.errors, "cannot be read in it"),
            ];
            let exceeded = parts.iter().find(|(bound, part, _)| bound.is_exceeded(*part, compared));
            if let Some((bound, part, what)) = exceeded {
                return Some(format!("{part} of {compared} compared keys {what}, more than {bound}"));
            }
        }
        let (new_us, current_us) = self.mean_latencies_us();
        let is_measured = self.timed.min(self.current_timed) >= bounds.reads_min.max(1);
        let is_slow = u128::from(new_us) * 100 > u128::from(current_us) * u128::from(bounds.latency_percent);
        (is_measured && is_slow).then(|| {
            format!(
                "its mean latency is {new_us} µs, and that of the current version {current_us} µs: more than {}%",
                bounds.latency_percent
            )
        })
    }
}

impl fmt::Display for CanaryCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (new_us, current_us) = self.mean_latencies_us();
        write!(
            f,
            "{} reads of it, {} compared: {} missing, {} added, {} changed, {} errors; mean latency {new_us} µs, \
             of the current version {current_us} µs",
            self.reads, self.compared, self.missing, self.added, self.changed, self.errors
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_reads_are_told_by_their_text() {
        for text in ["5%", "0.1%", "100%", "node:1,2", "zone:east,west"] {
            let reads: CanaryReads = text.parse().unwrap();
            assert_eq!(reads.to_string(), text);
        }
        for text in [
            "",
            "5",
            "0%",
            "101%",
            "-1%",
            "node:",
            "node:x",
            "zone:",
            "zone:a,,b",
            "rack:1",
        ] {
            let error = text.parse::<CanaryReads>().unwrap_err().to_string();
            assert!(error.contains("node:1,2"), "{error}");
        }
    }

    #[test]
    fn a_share_of_the_keys_is_taken_and_a_larger_one_contains_a_smaller_one() {
        let keys: Vec<String> = (0..10_000).map(|number| format!("key-{number}")).collect();
        let taken = |percent| -> Vec<&String> {
            let share = Share::percent(percent);
            keys.iter().filter(|key| is_in_share(share, key.as_bytes())).collect()
        };
        let (few, more) = (taken(5), taken(20));
        assert!((400..600).contains(&few.len()), "{}", few.len());
        assert!(few.iter().all(|key| more.contains(key)));
        assert_eq!((taken(0).len(), taken(100).len()), (0, keys.len()));
    }

    #[test]
    fn a_process_takes_part_by_its_node_or_its_zone() {
        let node = |number| NodeId::new(number).unwrap();
        let nodes: CanaryReads = "node:2".parse().unwrap();
        assert_eq!(nodes.share_of(Some(node(2)), Some("east")), Share::ALL);
        assert_eq!(nodes.share_of(Some(node(1)), Some("east")), Share::default());
        assert_eq!(nodes.share_of(None, Some("east")), Share::default());
        let zones: CanaryReads = "zone:east".parse().unwrap();
        assert_eq!(zones.share_of(None, Some("east")), Share::ALL);
        assert_eq!(zones.share_of(Some(node(1)), Some("west")), Share::default());
    }

    #[test]
    fn a_bound_applies_once_enough_was_compared() {
        let bounds = CanaryBounds::default();
        let counts = |compared, missing| CanaryCounts {
            compared,
            missing,
            ..CanaryCounts::default()
        };
        assert_eq!(counts(99, 99).exceeds(&bounds), None, "too few");
        assert_eq!(counts(100, 1).exceeds(&bounds), None, "just the bound");
        let reason = counts(100, 2).exceeds(&bounds).unwrap();
        assert!(reason.contains("2 of 100") && reason.contains("1%"), "{reason}");
        let errors = CanaryCounts {
            errors: 1,
            ..counts(200, 0)
        };
        assert!(errors.exceeds(&bounds).unwrap().contains("cannot be read"));
        let changed = CanaryCounts {
            changed: 200,
            ..counts(200, 0)
        };
        assert_eq!(changed.exceeds(&bounds), None, "values change as a rule");
    }

    #[test]
    fn latency_is_compared_once_both_versions_were_measured() {
        let slow = CanaryCounts {
            timed: 100,
            latency_us: 31_000,
            current_timed: 99,
            current_latency_us: 9_900,
            ..CanaryCounts::default()
        };
        let bounds = CanaryBounds::default();
        assert_eq!(slow.exceeds(&bounds), None);
        let measured = CanaryCounts {
            current_timed: 100,
            current_latency_us: 10_000,
            ..slow
        };
        assert!(measured.exceeds(&bounds).unwrap().contains("310 µs"));
    }

    #[test]
    fn a_paused_canary_keeps_its_clock() {
        let terms = CanaryTerms {
            reads: "5%".parse().unwrap(),
            time_ms: 1_000,
            bounds: CanaryBounds::default(),
        };
        let mut canary = CanaryRecord::new(terms);
        canary.run(1_000);
        canary.stop(CanaryState::Paused, 1_400);
        assert_eq!(canary.elapsed_ms(9_000), 400);
        canary.run(10_000);
        assert_eq!(canary.elapsed_ms(10_100), 500);
    }
}
