//! Requests that are traced. Look-ups go through the window alone, so that their times and their error are their own.

use fondaco_resp::command::CommandSpec;
use tokio::io::{AsyncRead, AsyncWrite};

use super::requests::{Source, Taking};
use super::{Connection, Turn};
use crate::server::traced::{Announced, Chosen, RequestTrace, in_envelope, is_between_nodes, is_on_data};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Whether the next request is traced, where this many billionths of them are.
    #[inline]
    pub(super) fn is_chosen(&mut self, spec: &CommandSpec, share: u64) -> bool {
        // It was chosen when it was looked at before, and had to wait for others.
        if self.chosen.is_some() {
            return true;
        }
        self.chosen = if is_between_nodes(spec.id) {
            in_envelope(&self.arguments, &self.input[self.consumed..])
        } else if !is_on_data(spec) {
            None
        } else {
            match self.session.announced_trace.take() {
                Some(Announced::Sampled(parent)) => Some(Chosen(Some(parent))),
                Some(Announced::Unsampled) => None,
                None => self.context.sampler.takes(share).then_some(Chosen(None)),
            }
        };
        self.chosen.is_some()
    }

    /// Takes the next request, which is traced; the turn that must go before, or follow, if one must.
    #[cold]
    pub(super) fn take_traced(
        &mut self,
        spec: &'static CommandSpec,
        source: Source,
        bytes: usize,
        taking: &Taking<'_>,
    ) -> Option<Turn> {
        if let Source::Queue(queued) = source {
            let turn = self.run_window(taking.catalog);
            if turn.is_none() {
                let trace = self.begin_trace(spec, taking);
                self.push(spec, queued, bytes, taking);
                if let Some(queue) = &mut self.queue {
                    queue.trace_last(trace);
                }
            }
            return turn;
        }
        if let Some(turn) = self.answer_before(taking) {
            return Some(turn);
        }
        let mut trace = self.begin_trace(spec, taking);
        match self.add_to_window(spec.id, source, taking.catalog) {
            Ok(true) => {
                self.consumed += bytes;
                trace.begin_look_up(&self.window, self.tally);
                self.trace = Some(trace);
                self.run_window(taking.catalog)
            }
            Ok(false) => {
                self.request_start = self.consumed;
                self.consumed += bytes;
                self.trace = Some(trace);
                Some(Turn::Run(spec.id))
            }
            Err(refusal) => {
                trace.fail(refusal.as_bytes());
                self.refuse(bytes, &refusal, taking)
            }
        }
    }

    fn begin_trace(&mut self, spec: &CommandSpec, taking: &Taking<'_>) -> Box<RequestTrace> {
        let request = (&self.arguments, &self.input[self.consumed..]);
        let queue = self.context.shared.metrics.spans();
        let chosen = self.chosen.take().unwrap_or(Chosen(None));
        RequestTrace::begin(chosen, spec, request, taking.catalog, taking.began, queue)
    }

    /// Ends the span of a command whose reply begins at this place of the output.
    #[cold]
    pub(super) fn end_trace(&mut self, start: usize, has_failed: bool) {
        if let Some(mut trace) = self.trace.take()
            && has_failed
        {
            let error = self.output.get(start + 1..).unwrap_or_default();
            trace.fail(error);
        }
    }
}
