//! The options of a request for the nodes to ask.

use std::time::{Duration, Instant};

use fondaco_client::read::{FanOut, named};
use fondaco_client::{CanaryChoice, ReadOptions};
use fondaco_model::StrategyName;
use fondaco_resp::parse_integer;

/// The options `FANOUT groups` and `STRATEGY name` of a request, and the end of the time that it has. Without them, the defaults
/// of the process hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steered {
    strategy: Option<StrategyName>,
    groups: Option<usize>,
    pub(crate) until: Option<Instant>,
    /// Whether stores are read at the versions of their canaries.
    pub(crate) is_canary: bool,
}

impl Steered {
    /// Reads options from the arguments, from a place on, as far as there are any; the place behind them.
    ///
    /// # Errors
    /// The error to answer with: an unknown strategy, or an invalid number of groups.
    pub(crate) fn parse<'a>(
        argument: impl Fn(usize) -> Option<&'a [u8]>,
        mut at: usize,
    ) -> Result<(Self, usize), String> {
        let mut steered = Self::default();
        while let Some(word) = argument(at) {
            let value = || argument(at + 1).ok_or_else(|| String::from("ERR syntax error"));
            if word.eq_ignore_ascii_case(b"FANOUT") {
                let groups = parse_integer(value()?).and_then(|groups| usize::try_from(groups).ok());
                let groups = groups.filter(|&groups| groups > 0);
                steered.groups = Some(groups.ok_or("ERR FANOUT is the number of groups to ask, 1 or more")?);
            } else if word.eq_ignore_ascii_case(b"STRATEGY") {
                let name = String::from_utf8_lossy(value()?).to_ascii_lowercase();
                steered.strategy = Some(
                    name.parse()
                        .map_err(|error: fondaco_model::WordError| format!("ERR {error}"))?,
                );
            } else {
                break;
            }
            at += 2;
        }
        Ok((steered, at))
    }

    /// The same, with this many milliseconds from now, if that is limited.
    pub(crate) fn within(self, deadline_ms: Option<u64>) -> Self {
        let until = deadline_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        Self { until, ..self }
    }

    /// The same, at the versions of the stores' canaries.
    pub(crate) fn of_canary(self) -> Self {
        Self {
            is_canary: true,
            ..self
        }
    }

    /// The time that is left for the request, if that is limited.
    pub(crate) fn time_left(self) -> Option<Duration> {
        let until = self.until?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// These options in the place of the defaults. A fan-out alone is that of the strategy that heeds it.
    pub(crate) fn apply(self, options: ReadOptions) -> ReadOptions {
        let strategy = self.strategy.or(self.groups.map(|_| StrategyName::Cluster));
        ReadOptions {
            deadline: self.time_left().unwrap_or(options.deadline),
            strategy: strategy.map(named).or(options.strategy),
            canary: match self.is_canary {
                true => CanaryChoice::Canary,
                false => CanaryChoice::Current,
            },
            fan_out: self.groups.map_or(options.fan_out, FanOut::Groups),
            ..options
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Steered, usize), String> {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        Steered::parse(|at| words.get(at).copied(), 1)
    }

    #[test]
    fn options_end_where_keys_begin() {
        let (steered, at) = parsed("FONDACO.MGET FANOUT 2 strategy round-robin s:a s:b").unwrap();
        assert_eq!(
            (steered.groups, steered.strategy),
            (Some(2), Some(StrategyName::RoundRobin))
        );
        assert_eq!(at, 5);
        assert_eq!(parsed("FONDACO.MGET s:a").unwrap(), (Steered::default(), 1));
    }

    #[test]
    fn options_that_are_none_are_refused_by_name() {
        for (text, part) in [
            ("x FANOUT 0 s:a", "groups"),
            ("x FANOUT two s:a", "groups"),
            ("x FANOUT", "syntax"),
            ("x STRATEGY best s:a", "\"best\""),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
