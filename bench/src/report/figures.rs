//! The figures of a row while it is measured: one value per round, by name.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::markdown::number;
use super::{Figure, Series};
use crate::load::{Costed, GroupReport};

/// The last words of the names of a load's figures.
pub const ASPECTS: [&str; 14] = [
    "rate",
    "capacity",
    "cpu",
    "cores",
    "memory",
    "reads",
    "p50",
    "p99",
    "p99.9",
    "nodes cpu",
    "router cpu",
    "all cpu",
    "router cost",
    "nodes cost",
];

/// Figures by name, in the order in which they were first measured; the last distribution of each latency; and variables for
/// texts.
#[derive(Debug, Default)]
pub struct Figures {
    figures: Vec<(String, Figure)>,
    distributions: Vec<Series>,
    variables: BTreeMap<String, String>,
}

impl Figures {
    /// Adds the value of a round.
    pub fn add(&mut self, name: &str, unit: &str, value: f64) {
        match self.figures.iter_mut().find(|(known, _)| known == name) {
            Some((_, figure)) => figure.rounds.push(value),
            None => self.put(name, Figure::new(unit, vec![value])),
        }
    }

    /// Sets a figure with all its rounds.
    pub fn put(&mut self, name: &str, figure: Figure) {
        self.figures.retain(|(known, _)| known != name);
        self.figures.push((name.to_owned(), figure));
    }

    /// Adds the latencies of a round: percentiles, as `NAME p99`, and the distribution.
    pub fn add_latencies(&mut self, name: &str, report: &GroupReport) {
        for (aspect, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            self.add(&format!("{name} {aspect}"), "µs", report.latency_us(quantile));
        }
        self.distributions.retain(|(known, _)| known != name);
        self.distributions.push((name.to_owned(), report.distribution()));
    }

    /// Adds the requests, or keys, per second, and per second of CPU time.
    pub fn add_rates(&mut self, name: &str, costed: &Costed, keys_per_request: usize) {
        let (unit, keys) = (
            if keys_per_request > 1 { "keys" } else { "requests" },
            keys_per_request as f64,
        );
        let per_second = costed.report.requests_per_second() * keys;
        self.add(&format!("{name} rate"), &format!("{unit}/s"), per_second);
        self.add(
            &format!("{name} cpu"),
            &format!("{unit}/CPU s"),
            costed.per_cpu_second() * keys,
        );
    }

    /// A figure.
    ///
    /// # Errors
    /// It was not measured.
    pub fn figure(&self, name: &str) -> Result<Figure> {
        let found = self.figures.iter().find(|(known, _)| known == name);
        let (_, figure) = found.with_context(|| format!("no figure {name:?} was measured"))?;
        Ok(figure.clone())
    }

    /// The median of a figure; NaN if it was not measured.
    pub fn median(&self, name: &str) -> f64 {
        self.figure(name).map_or(f64::NAN, |figure| figure.median())
    }

    /// Finds the best of these figures, given with titles: the least, or the greatest. Copies it to `best KIND`, and sets the variable
    /// `best KIND` to its title.
    pub fn choose_best<'a>(
        &mut self,
        kind: &str,
        of: impl IntoIterator<Item = (&'a str, String)>,
        least: bool,
    ) -> Result<()> {
        let sign = if least { 1.0 } else { -1.0 };
        let best = of
            .into_iter()
            .min_by(|a, b| (sign * self.median(&a.1)).total_cmp(&(sign * self.median(&b.1))));
        let (title, name) = best.context("no figures to choose from")?;
        let kind = format!("best {kind}");
        self.put(&kind, self.figure(&name)?);
        self.set(&kind, title);
        Ok(())
    }

    /// Sets a variable for texts.
    pub fn set(&mut self, variable: &str, text: impl Into<String>) {
        self.variables.insert(variable.to_owned(), text.into());
    }

    /// A text with its variables: `{~NAME}` is the median of a figure, `{~ONE|OTHER}` a ratio, `{name}` a variable.
    pub fn text(&self, template: &str) -> Result<String> {
        let mut parts = template.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part
                .split_once('}')
                .with_context(|| format!("an unclosed brace in {template:?}"))?;
            text += &match name.strip_prefix('~') {
                Some(figure) => match figure.split_once('|') {
                    Some((one, other)) => number(self.figure(one)?.over(&self.figure(other)?)),
                    None => number(self.figure(figure)?.median()),
                },
                None => self
                    .variables
                    .get(name)
                    .with_context(|| format!("no {name:?} for {template:?}"))?
                    .clone(),
            };
            text += rest;
        }
        Ok(text)
    }

    /// The last round's distribution of latencies.
    pub fn distribution(&self, name: &str) -> Result<Series> {
        let found = self.distributions.iter().find(|(known, _)| known == name);
        found
            .with_context(|| format!("no latencies {name:?} were measured"))
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_name_are_the_rounds_of_one_figure() {
        let mut figures = Figures::default();
        for value in [10.0, 30.0, 20.0] {
            figures.add("ours", "s", value);
        }
        assert_eq!(figures.figure("ours").unwrap().rounds, [10.0, 30.0, 20.0]);
        assert!(figures.figure("never measured").is_err() && figures.median("never measured").is_nan());
        figures.set("what", "records");
        assert_eq!(figures.text("{~ours} s for {what}").unwrap(), "20.0 s for records");
        assert_eq!(figures.text("{~ours|ours}").unwrap(), "1.00");
        assert!(figures.text("{other}").is_err());
    }
}
