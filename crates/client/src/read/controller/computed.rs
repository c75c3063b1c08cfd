//! The controller that balances the work of the client and of the nodes.

use super::{FanOutController, Query};

/// The penalty of some work `x`: `a·x·ln(x) + b`, and never less than 0.
///
/// `x·ln(x)` is the work of merging sorted sets. With a `b` below 0 the first units of work are free.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// The factor of the work.
    pub a: f64,
    /// The constant.
    pub b: f64,
}

impl Penalty {
    /// The penalty of this work.
    pub fn of(&self, work: f64) -> f64 {
        (self.a * shape(work) + self.b).max(0.0)
    }

    /// The penalty nearest to measurements, pairs of work and penalty, by least squares. `None` if they do not determine
    /// one: two or more different amounts of work are needed.
    ///
    /// The fit is linear. Measurements of free work, whose penalty is 0, must be left out.
    pub fn fit(measured: &[(f64, f64)]) -> Option<Self> {
        let count = measured.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| measured.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|pair| shape(pair.0)), mean(|pair| pair.1));
        let (mut covariance, mut variance) = (0.0, 0.0);
        for &(work, penalty) in measured {
            let from_mean = shape(work) - mean_x;
            covariance += from_mean * (penalty - mean_y);
            variance += from_mean * from_mean;
        }
        let a = covariance / variance;
        let is_determined = variance > f64::EPSILON * count * mean_x * mean_x && a.is_finite();
        is_determined.then_some(Self {
            a,
            b: mean_y - a * mean_x,
        })
    }
}

fn shape(work: f64) -> f64 {
    let work = work.max(1.0);
    work * work.ln()
}

/// For requests whose values are merged by nodes and by the client, and whose caller does not wait (Moolle, IV.C.3).
/// It chooses the number of groups `c` with the least sum of both penalties, `client(c·n) + server(largest share of a
/// node)` (equation 5). Of several it chooses the smallest.
///
/// If `k` keys are divided at random over `x` nodes, the largest share is taken to be `k/x + √(2·w·(k/x)·ln(x))`
/// (Raab and Steger, "Balls into Bins: A Simple and Tight Analysis"). `w = 1 + k/p` is the mean number of keys in the
/// partition of a key, for `p` partitions: they go to one node together.
///
/// The defaults have the steps that the paper reports for 10 groups of 20 nodes, if there are about 150 partitions a
/// node: one group below 450 keys, 5 at 1800, all 10 above 3000. Penalties without free work, or of the mean share, have
/// no such steps: they ask for more groups at 450 keys, or for fewer at 3000.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AsynchronousUnion {
    /// The penalty of the client, by the number of nodes asked.
    pub client: Penalty,
    /// The penalty of a node, by the number of keys it is asked for.
    pub server: Penalty,
}

impl Default for AsynchronousUnion {
    fn default() -> Self {
        Self {
            client: Penalty { a: 1e-3, b: 0.0 },
            // Nothing for the first 35 keys.
            server: Penalty { a: 1.0, b: -124.0 },
        }
    }
}

impl FanOutController for AsynchronousUnion {
    fn fan_out(&self, query: &Query) -> usize {
        let keys = query.keys as f64;
        let together = 1.0 + keys / query.partitions.max(1) as f64;
        let penalty = |groups: usize| {
            let nodes = groups as f64 * query.nodes_per_group;
            let share = keys / nodes;
            let largest_share = share + (2.0 * together * share * nodes.max(1.0).ln()).sqrt();
            self.client.of(nodes) + self.server.of(largest_share)
        };
        let all = (1..=query.groups).map(|groups| (groups, penalty(groups)));
        let least = all.min_by(|(_, one), (_, other)| one.total_cmp(other));
        least.map_or(1, |(groups, _)| groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_the_parameters_of_measurements_with_noise() {
        let (real, mut random) = (Penalty { a: 0.3, b: 12.0 }, fastrand::Rng::with_seed(1));
        let measured = (1..200).map(|work| {
            let work = f64::from(work * 5);
            (work, real.of(work) * (0.99 + random.f64() * 0.02))
        });
        let fitted = Penalty::fit(&measured.collect::<Vec<_>>()).unwrap();
        assert!((fitted.a / real.a - 1.0).abs() < 0.01, "{fitted:?}");
        let exact: Vec<(f64, f64)> = [5.0, 50.0, 500.0].map(|work| (work, real.of(work))).to_vec();
        let fitted = Penalty::fit(&exact).unwrap();
        assert!(
            (fitted.a - real.a).abs() < 1e-9 && (fitted.b - real.b).abs() < 1e-6,
            "{fitted:?}"
        );
    }

    #[test]
    fn too_few_measurements_fit_nothing() {
        assert_eq!(Penalty::fit(&[]), None);
        assert_eq!(Penalty::fit(&[(5.0, 1.0), (5.0, 2.0)]), None);
    }
}
