//! Lines and charts as data: which figures they show, and which ratio is wanted.

use anyhow::Result;
use serde::Deserialize;

use super::figures::{ASPECTS, Figures};
use super::{Chart, Figure, Line, Series, Target};

/// A line of the table.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LineSpec {
    /// The compared operation.
    pub work: String,
    /// The name of our figure.
    pub ours: String,
    /// The figures of the peers.
    pub peers: Vec<Named>,
    /// Whether peers that were not measured are left out.
    pub peers_may_lack: bool,
    /// The unit, if it is not that of the figures, and how many units of the figures it has, if not one.
    pub unit: Option<String>,
    pub per: Option<f64>,
    /// Two figures whose ratio is shown in place of one with our figure.
    pub ratio: Option<[String; 2]>,
    /// The reference of the ratio of our figure to that of the first peer, or of `ratio_to`.
    pub over: Option<String>,
    /// The same for the ratio of that figure to ours.
    pub under: Option<String>,
    /// The figure that the ratio refers to, if not the first peer's.
    pub ratio_to: Option<String>,
    /// Targets for the ratio.
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
    /// Targets for the ratios to figures: the figure, its name for people, and the limit.
    pub at_most_of: Vec<(String, String, f64)>,
    /// Targets for the median of our figure.
    pub figure_at_least: Option<f64>,
    pub figure_at_most: Option<f64>,
    /// A target for each round of our figure.
    pub each_at_most: Option<f64>,
    /// The text of the target, if it is not as usual.
    pub target: Option<String>,
    /// The memory usage.
    pub memory: String,
}

/// A figure, with its name for people if that is another one than that of the load which it belongs to.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Named {
    Figure(String),
    As(String, String),
    Labelled { label: String, figure: String },
}

/// A chart.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartSpec {
    /// The file name without extension.
    pub file: String,
    pub title: String,
    /// The unit of bars.
    pub unit: Option<String>,
    /// A bar for each of these figures.
    #[serde(default)]
    pub bars: Vec<Named>,
    /// A line for the last latencies of each of these loads.
    #[serde(default)]
    pub latencies: Vec<String>,
    /// The titles of the axes of lines.
    pub axes: Option<[String; 2]>,
    /// Lines from point to point.
    #[serde(default)]
    pub lines: Vec<SeriesSpec>,
}

/// A line of a chart: places on the first axis, and figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesSpec {
    label: String,
    points: Vec<Point>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    x: f64,
    /// The figure, or a place.
    #[serde(default)]
    y: String,
    wanted: Option<f64>,
    /// The unit of the axis, in units of the figure.
    #[serde(default = "one")]
    per: f64,
}

fn one() -> f64 {
    1.0
}

impl Named {
    /// The name for people, and the figure.
    fn find(&self, figures: &Figures) -> Result<(String, Figure)> {
        let (label, name) = match self {
            Self::As(label, name) | Self::Labelled { label, figure: name } => (label.as_str(), name),
            Self::Figure(name) => {
                let of_load = ASPECTS
                    .iter()
                    .rev()
                    .find_map(|aspect| name.strip_suffix(aspect)?.strip_suffix(' '));
                (of_load.unwrap_or(name), name)
            }
        };
        Ok((figures.text(label)?, figures.figure(&figures.text(name)?)?))
    }
}

impl LineSpec {
    /// The line of these figures.
    pub fn line(&self, figures: &Figures) -> Result<Line> {
        let with_unit = |mut figure: Figure| {
            figure.unit = self.unit.clone().unwrap_or(figure.unit);
            let per = self.per.unwrap_or(1.0);
            figure.rounds.iter_mut().for_each(|round| *round /= per);
            figure
        };
        let ours = with_unit(figures.figure(&self.ours)?);
        let found = self.peers.iter().map(|peer| peer.find(figures));
        let found = found.filter(|peer| peer.is_ok() || !self.peers_may_lack);
        let peers = found.map(|peer| peer.map(|(name, figure)| (name, with_unit(figure))));
        let peers = peers.collect::<Result<Vec<_>>>()?;
        let base = match (&self.ratio_to, peers.first()) {
            (Some(name), _) => with_unit(figures.figure(name)?),
            (None, Some((_, figure))) => figure.clone(),
            (None, None) => Figure::new("", Vec::new()),
        };
        let ratio = match (&self.ratio, &self.over, &self.under) {
            (Some([over, under]), Some(of), _) => {
                Some((figures.figure(over)?.over(&figures.figure(under)?), figures.text(of)?))
            }
            (_, Some(of), _) => Some((ours.over(&base), figures.text(of)?)),
            (_, None, Some(of)) => Some((base.over(&ours), figures.text(of)?)),
            (_, None, None) => None,
        };
        let times = ratio.as_ref().map_or(f64::NAN, |(ratio, _)| *ratio);
        let (median, unit) = (ours.median(), &ours.unit);
        let limits = [
            self.at_least.map(|min| (format!("≥ {min}×"), times >= min)),
            self.at_most.map(|max| (format!("≤ {max}×"), times <= max)),
            self.figure_at_least.map(|min| (format!("≥ {min}"), median >= min)),
            self.figure_at_most
                .map(|max| (format!("≤ {max} {unit}"), median <= max)),
            self.each_at_most
                .map(|max| (format!("≤ {max}"), ours.rounds.iter().all(|&round| round <= max))),
        ];
        let of = |(name, label, max): &(String, String, f64)| {
            Ok((format!("≤ {max}× {label}"), ours.over(&figures.figure(name)?) <= *max))
        };
        let of = self.at_most_of.iter().map(of).collect::<Result<Vec<_>>>()?;
        let targets = limits.into_iter().flatten().chain(of).map(|(text, reached)| Target {
            text: self.target.clone().unwrap_or(text),
            reached,
        });
        Ok(Line {
            work: figures.text(&self.work)?,
            targets: targets.collect(),
            memory: figures.text(&self.memory)?,
            ours,
            peers,
            ratio,
        })
    }
}

impl ChartSpec {
    /// The chart of these figures.
    pub fn chart(&self, figures: &Figures) -> Result<Chart> {
        let (file, title) = (self.file.clone(), figures.text(&self.title)?);
        if let Some([x, y]) = &self.axes {
            let line = |line: &SeriesSpec| -> Result<Series> {
                let points = line.points.iter().map(|point| {
                    let y = point
                        .wanted
                        .map_or_else(|| Ok(figures.figure(&point.y)?.median()), anyhow::Ok)?;
                    Ok((point.x, y / point.per))
                });
                Ok((line.label.clone(), points.collect::<Result<_>>()?))
            };
            let series = self.lines.iter().map(line).collect::<Result<_>>()?;
            return Ok(Chart::lines(file, title, [x, y], series));
        }
        if !self.latencies.is_empty() {
            let series = self.latencies.iter().map(|name| figures.distribution(name));
            return Ok(Chart::Latencies {
                file,
                title,
                series: series.collect::<Result<_>>()?,
            });
        }
        let bars = self.bars.iter().map(|bar| {
            let (label, figure) = bar.find(figures)?;
            Ok((label, figure.median()))
        });
        Ok(Chart::Bars {
            file,
            title,
            unit: self.unit.clone().unwrap_or_default(),
            bars: bars.collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_ratio_of_its_figures_and_their_targets() {
        let mut figures = Figures::default();
        for (ours, peer) in [(10.0, 20.0), (30.0, 30.0), (20.0, 80.0)] {
            figures.add("busy p99", "µs", ours);
            figures.add("quiet p99", "µs", peer);
        }
        let line = LineSpec {
            ours: "busy p99".into(),
            peers: vec![Named::Figure("quiet p99".into())],
            over: Some("itself".into()),
            at_most: Some(0.4),
            at_least: Some(0.5),
            ..LineSpec::default()
        };
        let line = line.line(&figures).unwrap();
        assert_eq!(line.peers[0].0, "quiet");
        assert_eq!(line.peers[0].1.rounds, [20.0, 30.0, 80.0]);
        assert_eq!(line.ratio, Some((0.5, "itself".to_owned())));
        assert_eq!(
            line.targets.iter().map(|target| target.reached).collect::<Vec<_>>(),
            [true, false]
        );
    }
}
