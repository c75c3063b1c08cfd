//! Controllers that keep rates of requests below what client and nodes can take.
//!
//! They go by the rate of incoming queries, which they measure, and never by the rate of requests, which they control:
//! a loop through their own output could oscillate.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{FanOutController, Query};

/// The time constant of meters, by default: after a change of the rate, 95 % of it is seen after three times as long.
const WINDOW: Duration = Duration::from_secs(5);

/// Mixes the whole numbers next to a wanted number, so that their mean is the wanted number: the part that rounding cuts
/// off is carried over to the next numbers. Takes no lock.
#[derive(Debug, Default)]
pub(super) struct Mixer {
    /// The sum of the parts that were cut off, in units of 2^-32.
    rest: AtomicU32,
}

impl Mixer {
    /// A whole number next to the wanted one, which is not negative.
    pub(super) fn whole(&self, wanted: f64) -> usize {
        let cut_off = (wanted.fract() * f64::from(u32::MAX)) as u32;
        let carried = self.rest.fetch_add(cut_off, Relaxed).checked_add(cut_off).is_none();
        wanted as usize + usize::from(carried)
    }
}

/// The rate of events, with weights that decay exponentially.
#[derive(Debug)]
struct Meter {
    window_s: f64,
    /// The decayed number of events, and of seconds, since the first event.
    events: f64,
    seconds: f64,
    last_us: Option<u64>,
}

impl Meter {
    fn new(window: Duration) -> Self {
        Self {
            window_s: window.as_secs_f64().max(1e-6),
            events: 0.0,
            seconds: 0.0,
            last_us: None,
        }
    }

    /// Counts an event. Returns the rate of events before it, per second, and the weight of the time since the last one.
    /// Before the second event the rate is 0.
    fn event(&mut self, now_us: u64) -> (f64, f64) {
        let since_us = self.last_us.map_or(0, |last_us| now_us.saturating_sub(last_us));
        let decay = (-(since_us as f64 / 1e6) / self.window_s).exp();
        self.seconds = self.seconds * decay + self.window_s * (1.0 - decay);
        let events = self.events * decay;
        self.last_us = Some(now_us.max(self.last_us.unwrap_or(0)));
        self.events = events + 1.0;
        let rate = if self.seconds > 0.0 { events / self.seconds } else { 0.0 };
        (rate, 1.0 - decay)
    }
}

/// As many groups as the client can take (Moolle, IV.D.1, equations 6 and 7): `D / (n·QPS)` for `D` requests per second,
/// `n` nodes in a group, and the measured rate of queries. At least one, and at most all. Begins with one: a client that
/// starts does not know yet how many queries come.
#[derive(Debug)]
pub struct ClientRate {
    requests_per_second: f64,
    queries: Mutex<Meter>,
    mixer: Mixer,
}

impl ClientRate {
    /// For a client that may send this number of requests per second.
    pub fn new(requests_per_second: f64) -> Self {
        Self {
            requests_per_second,
            queries: Mutex::new(Meter::new(WINDOW)),
            mixer: Mixer::default(),
        }
    }

    /// Measures the rate of queries with this time constant; 5 s by default.
    pub fn window(mut self, window: Duration) -> Self {
        self.queries = Mutex::new(Meter::new(window));
        self
    }
}

impl FanOutController for ClientRate {
    fn fan_out(&self, query: &Query) -> usize {
        let (rate, _) = self.queries.lock().event(query.now_us);
        let wanted = client_limit(self.requests_per_second, query, rate);
        self.mixer.whole(wanted.clamp(1.0, query.groups as f64))
    }
}

/// The number of groups with which queries at this rate make this number of requests per second, on groups with as
/// many nodes as those of the query. One group while the rate is not known.
fn client_limit(requests_per_second: f64, query: &Query, rate: f64) -> f64 {
    match rate > 0.0 {
        true => requests_per_second / (query.nodes_per_group * rate),
        false => 1.0,
    }
}

/// As many groups as the client and the nodes can take (Moolle, IV.D.2, equation 10): the least of all groups, the number
/// of [`ClientRate`], and `C·S / (m·QPS)` for `C` groups and `S` requests per second to each node.
///
/// The rate of all clients' queries, `m·QPS`, is not known, but the rate that nodes report is, which is that times the
/// share of groups in use. The share in use is taken to be that of this controller, as if all clients were as busy. It
/// begins with one group, so that a client that starts takes no more until nodes have shown that they can take it.
#[derive(Debug)]
pub struct GlobalRate {
    requests_per_second: f64,
    node_requests_per_second: f64,
    state: Mutex<InUse>,
    mixer: Mixer,
}

#[derive(Debug)]
struct InUse {
    queries: Meter,
    /// The mean share of groups that queries were told to use; `None` before the first.
    share: Option<f64>,
}

impl GlobalRate {
    /// For a client that may send `requests_per_second`, and nodes that may each get `node_requests_per_second` from
    /// all clients.
    pub fn new(requests_per_second: f64, node_requests_per_second: f64) -> Self {
        Self {
            requests_per_second,
            node_requests_per_second,
            state: Mutex::new(InUse {
                queries: Meter::new(WINDOW),
                share: None,
            }),
            mixer: Mixer::default(),
        }
    }

    /// Measures rates with this time constant; 5 s by default. It should not be shorter than that of the nodes' reports.
    pub fn window(self, window: Duration) -> Self {
        let mut state = self.state.lock();
        state.queries = Meter::new(window);
        drop(state);
        self
    }
}

impl FanOutController for GlobalRate {
    fn fan_out(&self, query: &Query) -> usize {
        let groups = query.groups as f64;
        let mut state = self.state.lock();
        let (rate, weight) = state.queries.event(query.now_us);
        let share = state.share.unwrap_or(1.0 / groups).clamp(1.0 / groups, 1.0);
        let of_client = client_limit(self.requests_per_second, query, rate);
        let of_nodes = match query.rates.per_node() {
            Some(reported) if reported > 0.0 => groups * self.node_requests_per_second / (reported / share),
            _ => groups,
        };
        let wanted = of_client.min(of_nodes).clamp(1.0, groups);
        state.share = Some(share + (wanted / groups - share) * weight);
        drop(state);
        self.mixer.whole(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_mix_is_the_wanted_number_and_it_mixes_neighbours_only() {
        for wanted in [1.0, 1.25, 3.9, 7.001] {
            let mixer = Mixer::default();
            let all: Vec<usize> = (0..10_000).map(|_| mixer.whole(wanted)).collect();
            let mean = all.iter().sum::<usize>() as f64 / 10_000.0;
            assert!((mean - wanted).abs() < 1e-3, "{mean} for {wanted}");
            assert!(all.iter().all(|&one| (one as f64 - wanted).abs() < 1.0));
        }
    }

    #[test]
    fn a_meter_knows_the_rate_from_the_second_event_on_and_follows_it() {
        let mut meter = Meter::new(Duration::from_secs(5));
        assert_eq!(meter.event(1_000_000).0, 0.0);
        let mut now_us = 1_000_000;
        for period_us in [40_000, 5_000, 100_000] {
            let mut rate = 0.0;
            for _ in 0..30_000_000 / period_us {
                now_us += period_us;
                rate = meter.event(now_us).0;
            }
            let expected = 1e6 / period_us as f64;
            assert!((rate / expected - 1.0).abs() < 0.05, "{rate} for {expected}");
        }
    }
}
