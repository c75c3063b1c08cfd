//! The results: rows of the table, their lines, figures with all their rounds, and charts.
//!
//! It is plain data, stored as JSON; the Markdown table and the plots are generated from it alone.

mod figures;
pub mod markdown;
mod plots;
pub mod spec;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::description::Description;
pub use figures::Figures;

/// The file of a [`Report`].
pub const JSON_FILE: &str = "results.json";
/// The file with the table.
pub const MARKDOWN_FILE: &str = "results.md";

/// All results.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine of the last run.
    pub machine: Description,
    /// The rows, in the order of the table.
    pub rows: Vec<Row>,
}

/// One row of the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Its name on the command line.
    pub name: String,
    /// A description of the row.
    pub work: String,
    /// Whether the data was small and the rounds few: such figures have no meaning.
    pub quick: bool,
    /// The time of the measurement, in seconds since 1970.
    pub measured_unix_s: u64,
    /// The commit that was measured.
    pub commit: String,
    /// The processor that it was measured on, if the last run was on another one.
    #[serde(default)]
    pub processor: Option<String>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// The figures; empty if it failed.
    pub lines: Vec<Line>,
    /// Remarks about the figures.
    pub notes: Vec<String>,
    /// The charts.
    pub charts: Vec<Chart>,
    /// Why there are no figures.
    pub failure: Option<String>,
}

/// One comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// The compared operation, within the row.
    pub work: String,
    /// Our figure.
    pub ours: Figure,
    /// The figures of the peers.
    pub peers: Vec<(String, Figure)>,
    /// The ratio that the target applies to, and the peer that it compares with.
    pub ratio: Option<(f64, String)>,
    /// The targets, and whether they were reached.
    pub targets: Vec<Target>,
    /// The memory usage, as text.
    pub memory: String,
}

/// A measured quantity: one value per round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The unit of the values.
    pub unit: String,
    /// The rounds, in chronological order.
    pub rounds: Vec<f64>,
}

/// A target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Target {
    /// The text of the target in the table.
    pub text: String,
    /// Whether it was reached.
    pub reached: bool,
}

/// A labelled line of a chart.
pub type Series = (String, Vec<(f64, f64)>);

/// A chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chart {
    /// One bar for each label.
    Bars {
        /// The file name without extension.
        file: String,
        /// The title.
        title: String,
        /// The unit of a bar.
        unit: String,
        /// Labels and lengths.
        bars: Vec<(String, f64)>,
    },
    /// Lines over logarithmic latencies: the share of requests that were not slower.
    Latencies {
        /// The file name without extension.
        file: String,
        /// The title.
        title: String,
        /// Labels, and points of microseconds and percentile.
        series: Vec<Series>,
    },
    /// Lines from point to point.
    Lines {
        /// The file name without extension.
        file: String,
        /// The title.
        title: String,
        /// The titles of the axes.
        axes: (String, String),
        /// Labels and points.
        series: Vec<Series>,
    },
}

impl Chart {
    /// Lines from point to point.
    pub fn lines(file: impl Into<String>, title: impl Into<String>, axes: [&str; 2], series: Vec<Series>) -> Self {
        Self::Lines {
            file: file.into(),
            title: title.into(),
            axes: (axes[0].into(), axes[1].into()),
            series,
        }
    }
}

impl Figure {
    /// A figure of these rounds.
    pub fn new(unit: &str, rounds: Vec<f64>) -> Self {
        Self {
            unit: unit.to_owned(),
            rounds,
        }
    }

    /// The median of the rounds.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// The ratio of this figure to another, round by round, and the median of these ratios: a disturbance of the
    /// machine affects both values of a round.
    pub fn over(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> = self.rounds.iter().zip(&other.rounds).map(|(a, b)| a / b).collect();
        median(&ratios)
    }
}

impl Line {
    /// Whether all targets were reached.
    pub fn reached(&self) -> bool {
        self.targets.iter().all(|target| target.reached)
    }
}

impl Report {
    /// Reads the results of an earlier run in a directory; `None` if there are no readable ones.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(dir.join(JSON_FILE)).ok()?).ok()
    }

    /// The results of earlier runs in a directory, if there are any, for a run on this machine.
    pub fn begin(machine: Description, dir: &Path) -> Self {
        let mut rows = Vec::new();
        if let Some(old) = Self::read(dir) {
            rows = old.rows;
            for row in &mut rows {
                let of = row.processor.take().unwrap_or_else(|| old.machine.cpu.clone());
                row.processor = Some(of).filter(|of| *of != machine.cpu);
            }
        }
        Self { machine, rows }
    }

    /// Replaces the row with the same name, or inserts it at its position in `order`.
    pub fn put(&mut self, row: Row, order: &[&str]) {
        self.rows.retain(|old| old.name != row.name);
        self.rows.push(row);
        self.rows
            .sort_by_key(|row| order.iter().position(|name| *name == row.name));
    }

    /// Writes JSON, Markdown and plots into a directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("could not create {dir:?}"))?;
        fs::write(dir.join(JSON_FILE), serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(dir.join(MARKDOWN_FILE), markdown::table(self))?;
        for chart in self.rows.iter().flat_map(|row| &row.charts) {
            plots::draw(chart, dir)?;
        }
        Ok(())
    }
}

/// The median; the mean of the two middle values if their number is even. NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ours = Figure::new("ns", vec![10.0, 20.0, 30.0]);
        let theirs = Figure::new("ns", vec![20.0, 40.0, 90.0]);
        assert_eq!(theirs.over(&ours), 2.0);
    }
}
