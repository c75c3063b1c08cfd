//! A filter that steadies another controller.

use std::sync::Arc;

use parking_lot::Mutex;

use super::rate::Mixer;
use super::{FanOutController, Query};

/// Follows the number of groups of another controller as a proportional-derivative controller (Moolle, V.C), so that a
/// number that jumps to and fro moves little.
///
/// The output `u` follows the wanted number `r` by `du/dt = P·(r − u) + D·d(r − u)/dt`, solved backwards in time. For
/// any gains and any time between queries it approaches `r` without overshoot. A step of `r` is followed at once by
/// `D / (1 + D)` of it, and the rest decays with the time constant `(1 + D) / P`, in seconds. (The form that adds
/// `P·e + D·Δe` at each query is on the edge of oscillation with the gains of the paper.)
#[derive(Debug)]
pub struct Pd {
    inner: Arc<dyn FanOutController>,
    proportional_per_second: f64,
    derivative: f64,
    state: Mutex<Option<State>>,
    mixer: Mixer,
}

#[derive(Debug, Clone, Copy)]
struct State {
    output: f64,
    wanted: f64,
    at_us: u64,
}

impl Pd {
    /// A filter with the gains of the paper, 1.0 and 0.5.
    pub fn around(inner: Arc<dyn FanOutController>) -> Self {
        Self {
            inner,
            proportional_per_second: 1.0,
            derivative: 0.5,
            state: Mutex::new(None),
            mixer: Mixer::default(),
        }
    }

    /// The same with other gains; negative ones count as 0.
    pub fn gains(mut self, proportional_per_second: f64, derivative: f64) -> Self {
        self.proportional_per_second = proportional_per_second.max(0.0);
        self.derivative = derivative.max(0.0);
        self
    }
}

impl FanOutController for Pd {
    fn fan_out(&self, query: &Query) -> usize {
        let wanted = self.inner.fan_out(query) as f64;
        let mut state = self.state.lock();
        let former = state.unwrap_or(State {
            output: wanted,
            wanted,
            at_us: query.now_us,
        });
        let seconds = query.now_us.saturating_sub(former.at_us) as f64 / 1e6;
        let (step, derivative) = (self.proportional_per_second * seconds, self.derivative);
        let moved = step * wanted + derivative * (wanted - former.wanted);
        let output = (former.output * (1.0 + derivative) + moved) / (1.0 + derivative + step);
        *state = Some(State {
            output,
            wanted,
            at_us: query.now_us.max(former.at_us),
        });
        drop(state);
        self.mixer.whole(output.clamp(1.0, query.groups as f64))
    }
}
