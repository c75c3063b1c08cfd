//! The figures of a row while it is measured: one value per round, by name.

use super::markdown::number;
use super::{Chart, Figure, Line, Series};
use crate::load::GroupReport;

/// Figures by name, in the order in which they were first measured; and the last distribution of each latency.
#[derive(Debug, Default)]
pub struct Rounds {
    figures: Vec<(String, Figure)>,
    distributions: Vec<Series>,
}

impl Rounds {
    /// Adds the value of a round.
    pub fn add(&mut self, name: &str, unit: &str, value: f64) {
        match self.figures.iter_mut().find(|(known, _)| known == name) {
            Some((_, figure)) => figure.rounds.push(value),
            None => self.figures.push((name.to_owned(), Figure::new(unit, vec![value]))),
        }
    }

    /// Adds the latencies of a round: the 99th percentile by this name, and the median as `NAME, median`.
    pub fn add_latency(&mut self, name: &str, report: &GroupReport) {
        self.add(name, "µs", report.latency_us(0.99));
        self.add(&format!("{name}, median"), "µs", report.latency_us(0.5));
        self.distributions.retain(|(known, _)| known != name);
        self.distributions.push((name.to_owned(), report.distribution()));
    }

    /// The figure of this name; one without rounds if it was not measured.
    pub fn figure(&self, name: &str) -> Figure {
        let found = self.figures.iter().find(|(known, _)| known == name);
        found.map_or_else(|| Figure::new("", Vec::new()), |(_, figure)| figure.clone())
    }

    /// The median of a figure.
    pub fn median(&self, name: &str) -> f64 {
        self.figure(name).median()
    }

    /// The median of a figure, as text.
    pub fn shown(&self, name: &str) -> String {
        number(self.median(name))
    }

    /// A line of a figure alone.
    pub fn line(&self, work: impl Into<String>, ours: &str) -> Line {
        Line::new(work, self.figure(ours))
    }

    /// A line of a figure beside another one, with the ratio to it.
    pub fn compare(&self, work: impl Into<String>, ours: &str, peer: &str, of: &str) -> Line {
        self.line(work, ours).peer(peer, self.figure(peer)).over_peer(of)
    }

    /// A line of a figure beside others, which are in the order of their names here.
    pub fn beside(&self, work: impl Into<String>, ours: &str, peers: &[&str]) -> Line {
        let peers = peers.iter().map(|&peer| (peer.to_owned(), self.figure(peer)));
        self.line(work, ours).peers(peers)
    }

    /// A chart of the last round's latencies.
    pub fn latencies(&self, file: &str, title: &str, names: &[&str]) -> Chart {
        let of_name = |name: &&str| self.distributions.iter().find(|(known, _)| known == name);
        Chart::Latencies {
            file: file.into(),
            title: format!("{title} (last round)"),
            series: names.iter().filter_map(of_name).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_name_are_the_rounds_of_one_figure() {
        let mut rounds = Rounds::default();
        for (ours, peer) in [(10.0, 20.0), (30.0, 30.0), (20.0, 80.0)] {
            rounds.add("ours", "s", ours);
            rounds.add("peer", "s", peer);
        }
        let line = rounds.compare("work", "ours", "peer", "the peer").at_most(0.4);
        assert_eq!(line.ours.rounds, [10.0, 30.0, 20.0]);
        assert_eq!(line.peers[0].1.rounds, [20.0, 30.0, 80.0]);
        assert_eq!(line.ratio, Some((0.5, "the peer".to_owned())));
        assert!(!line.reached() && line.at_least(0.5).targets[1].reached);
        assert!(rounds.median("never measured").is_nan());
    }
}
