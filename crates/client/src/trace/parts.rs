//! The spans of one operation: of all of it, if it coordinates replicas, and of each request to a node.

use fondaco_model::NodeId;
use fondaco_protocol::TraceContext;
use smallvec::SmallVec;

use super::{OpenSpan, SpanKind, Tracing};
use crate::operation::{AskId, Described};

/// The spans of an operation of a sampled request.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Of all of it, until it is answered.
    whole: Option<OpenSpan>,
    tracing: Tracing,
    /// Of requests that are not answered.
    open: SmallVec<[(AskId, OpenSpan); 4]>,
}

/// Where a request of an operation goes, and why.
pub(crate) struct Sent<'a> {
    pub(crate) id: AskId,
    pub(crate) node: NodeId,
    /// The address of the node, if it is known.
    pub(crate) address: Option<&'a str>,
    /// Why the node is asked, in a word.
    pub(crate) role: &'static str,
}

impl Described<'_> {
    fn span(&self, tracing: &Tracing, kind: SpanKind) -> OpenSpan {
        let name = match self.store {
            "" => self.name.to_owned(),
            store => format!("{} {store}", self.name),
        };
        let mut span = tracing.begin(name, kind);
        span.set("db.operation.name", self.name);
        span.set("db.collection.name", self.store.to_owned());
        span.set("fondaco.keys", self.keys);
        span
    }
}

impl Parts {
    /// Those of an operation of a sampled request.
    pub(crate) fn of(tracing: Tracing, described: Option<Described<'_>>) -> Box<Self> {
        let whole = described.map(|described| described.span(&tracing, SpanKind::Internal));
        let inner = whole.as_ref().and_then(OpenSpan::tracing);
        Box::new(Self {
            whole,
            tracing: inner.unwrap_or(tracing),
            open: SmallVec::new(),
        })
    }

    /// A request is about to be sent: what it carries along.
    pub(crate) fn sent(&mut self, sent: &Sent<'_>, described: &Described<'_>) -> Option<TraceContext> {
        let mut span = described.span(&self.tracing, SpanKind::Client);
        span.set("fondaco.node", u64::from(sent.node.get()));
        span.set("fondaco.part", sent.role);
        if let Some((host, port)) = sent.address.and_then(|address| address.rsplit_once(':')) {
            span.set("server.address", host.to_owned());
            if let Ok(port) = port.parse::<u16>() {
                span.set("server.port", u64::from(port));
            }
        }
        let context = span.context();
        self.open.push((sent.id, span));
        context
    }

    /// A request is carried out within the process.
    pub(crate) fn is_here(&mut self, id: AskId) {
        if let Some((_, span)) = self.open.iter_mut().find(|(open, _)| *open == id) {
            span.is_internal();
        }
    }

    /// A request was answered, or failed with an error that begins with its code.
    pub(crate) fn heard(&mut self, id: AskId, error: Option<&str>) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == id) else {
            return;
        };
        let (_, mut span) = self.open.swap_remove(at);
        if let Some(error) = error {
            span.fail(error);
        }
        span.end();
    }

    /// The operation is answered.
    pub(crate) fn answered(&mut self, error: Option<&str>) {
        if let Some(mut whole) = self.whole.take() {
            if let Some(error) = error {
                whole.fail(error);
            }
            whole.end();
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Another answer came first, or the time was over.
        for (_, span) in &mut self.open {
            span.set("fondaco.unanswered", true);
        }
    }
}
