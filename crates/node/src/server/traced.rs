//! Requests that are traced: which ones are, and the span of each.
//!
//! The first process that a request comes to decides, by the setting `traces-sample` or by what the client says
//! (`FONDACO.TRACE`). Others follow what the envelope carries. Without a collector, requests cost one look at a
//! number.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use fondaco_catalog::{Catalog, WHOLE_SHARE};
use fondaco_client::trace::{OpenSpan, SpanKind, SpanQueue, Tracing};
use fondaco_protocol::replica::ReplicaCommand;
use fondaco_protocol::{Envelope, TraceContext};
use fondaco_resp::Arguments;
use fondaco_resp::command::{CommandId, CommandSpec, Flags};

use super::queue::replica_command;
use super::window::{Tally, Window};

/// Chooses requests at random, so that each has the same chance: how many are passed over is drawn when one is taken.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    left: Cell<u64>,
    /// The share that this was drawn for, in billionths.
    share: Cell<u64>,
}

impl Sampler {
    /// Whether the next request is taken, where this many billionths are.
    #[inline]
    pub(super) fn takes(&self, share: u64) -> bool {
        if self.share.replace(share) != share {
            self.left.set(passed_over(share));
        }
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                false
            }
            None => {
                self.left.set(passed_over(share));
                share > 0
            }
        }
    }
}

/// How many requests are passed over before the next one that is taken.
fn passed_over(share: u64) -> u64 {
    match share {
        0 => u64::MAX,
        WHOLE_SHARE.. => 0,
        _ => {
            let share = share as f64 / WHOLE_SHARE as f64;
            // Above 0, so that its logarithm is finite.
            let chance = 1.0 - fastrand::f64();
            (chance.ln() / (-share).ln_1p()) as u64
        }
    }
}

/// The trace of the next request on data, as its client has announced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    /// The client is traced, and this is its span.
    Sampled(TraceContext),
    /// The client is not traced.
    Unsampled,
}

/// A request that was chosen, before it is begun: the span that caused it, if another process says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen(pub(super) Option<TraceContext>);

/// Whether clients ask for data with a command, so that it may be sampled here.
pub(super) fn is_on_data(spec: &CommandSpec) -> bool {
    (spec.flags.contains(Flags::READONLY) || spec.flags.contains(Flags::WRITE)) && !is_between_nodes(spec.id)
}

/// Whether a command comes from another process of the cluster, or from the client library: it begins with an envelope.
pub(super) fn is_between_nodes(command: CommandId) -> bool {
    matches!(command, CommandId::FondacoRead | CommandId::FondacoCompute) || replica_command(command).is_some()
}

/// The trace in the envelope of a request.
pub(super) fn in_envelope(arguments: &Arguments, request: &[u8]) -> Option<Chosen> {
    let trace = Envelope::trace_of(arguments.get(1, request)?)?;
    Some(Chosen(Some(trace)))
}

/// The spans of a request that is carried out.
#[derive(Debug)]
pub(super) struct RequestTrace {
    span: OpenSpan,
    /// Of what is looked up here, with what had been looked up before.
    look_up: Option<(OpenSpan, Tally)>,
}

impl RequestTrace {
    /// Begins the span of a request, which was read at `began`.
    pub(super) fn begin(
        chosen: Chosen,
        spec: &CommandSpec,
        (arguments, request): (&Arguments, &[u8]),
        catalog: &Catalog,
        began: Instant,
        queue: &Arc<SpanQueue>,
    ) -> Box<Self> {
        let operation = spec.name.to_uppercase().replace('|', " ");
        // A name that is no store's may be anything, also a part of a key.
        let store = store_name(spec, arguments, request).and_then(|name| catalog.store_on_wire(name));
        let store = store.map(|place| catalog.stores()[usize::from(place)].name.as_str());
        let name = match store {
            Some(store) => format!("{operation} {store}"),
            None => operation.clone(),
        };
        let mut span = OpenSpan::root(chosen.0, name, SpanKind::Server, queue);
        span.began_at(began);
        span.set("db.operation.name", operation);
        if let Some(store) = store {
            span.set("db.collection.name", store.to_owned());
        }
        let keys = key_count(spec, arguments);
        if keys > 0 {
            span.set("fondaco.keys", keys);
        }
        Box::new(Self { span, look_up: None })
    }

    /// For the spans of its parts.
    pub(super) fn tracing(&self) -> Option<Tracing> {
        self.span.tracing()
    }

    /// Keys of the window are about to be looked up here.
    pub(super) fn begin_look_up(&mut self, window: &Window, tally: Tally) {
        let keys = window.local_keys();
        if keys > 0
            && let Some(tracing) = self.tracing()
        {
            let mut span = tracing.begin("look-up".into(), SpanKind::Internal);
            span.set("fondaco.keys", keys);
            self.look_up = Some((span, tally));
        }
    }

    /// The window is answered.
    pub(super) fn end_window(mut self, window: &Window, tally: Tally) {
        if let Some((mut span, before)) = self.look_up.take() {
            span.set("fondaco.keys.disk", tally.cold.saturating_sub(before.cold));
            span.set("fondaco.keys.absent", tally.absent.saturating_sub(before.absent));
            let failed = tally.failed.saturating_sub(before.failed);
            if failed > 0 {
                span.set("fondaco.keys.failed", failed);
                span.fail(window.failure().unwrap_or_default());
            }
            span.end();
        }
        if let Some(error) = window.failure() {
            self.span.fail(error);
        }
    }

    /// It is answered with this error, which begins with its code.
    pub(super) fn fail(&mut self, error: &[u8]) {
        let code = error.split(|byte| byte.is_ascii_whitespace()).next();
        self.span.fail(&String::from_utf8_lossy(code.unwrap_or_default()));
    }
}

/// The name of the store that a request begins with, as it stands there.
fn store_name<'a>(spec: &CommandSpec, arguments: &'a Arguments, request: &'a [u8]) -> Option<&'a [u8]> {
    let place = match (spec.id, replica_command(spec.id)) {
        (CommandId::FondacoRead | CommandId::FondacoCompute, _) => 4,
        (_, Some(ReplicaCommand::Get | ReplicaCommand::Put)) => 4,
        (_, Some(_)) => 3,
        _ => {
            let key = arguments.get(spec.key_places(arguments.len()).next()?, request)?;
            let end = memchr::memchr(b':', key).unwrap_or(key.len());
            return Some(&key[..end]);
        }
    };
    arguments.get(place, request)
}

fn key_count(spec: &CommandSpec, arguments: &Arguments) -> usize {
    match spec.id {
        CommandId::FondacoRead => arguments.len().saturating_sub(5),
        CommandId::FondacoCompute => arguments.len().saturating_sub(7),
        _ => spec.key_places(arguments.len()).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sampler: &Sampler, share: u64, requests: u64) -> u64 {
        (0..requests).filter(|_| sampler.takes(share)).count() as u64
    }

    #[test]
    fn a_share_of_requests_is_taken_by_chance() {
        fastrand::seed(7);
        let sampler = Sampler::default();
        // Five standard deviations.
        for (share, requests) in [(0.5, 10_000_u64), (0.01, 1_000_000), (0.001, 4_000_000)] {
            let expected = share * requests as f64;
            let deviation = (expected * (1.0 - share)).sqrt();
            let taken = taken(&sampler, (share * 1e9) as u64, requests) as f64;
            assert!((taken - expected).abs() < 5.0 * deviation, "{taken} of {expected}");
        }
    }

    #[test]
    fn all_or_no_request_is_taken_at_once() {
        let sampler = Sampler::default();
        assert_eq!(taken(&sampler, 0, 1000), 0);
        assert_eq!(taken(&sampler, WHOLE_SHARE, 1000), 1000);
        assert_eq!(taken(&sampler, 0, 1000), 0);
        assert_eq!(taken(&sampler, 1, 1000), 0);
        assert_eq!(taken(&sampler, WHOLE_SHARE, 10), 10);
    }
}
