//! One span: something that took time, of a request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fondaco_protocol::TraceContext;
use smallvec::SmallVec;

use super::{SpanQueue, Tracing};

/// The value of an attribute of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
    /// Whether something holds.
    Flag(bool),
}

/// The kind of a span, as in OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A step within the process.
    Internal,
    /// A request that the process answers.
    Server,
    /// A request that the process sends.
    Client,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its trace, and its own id.
    pub context: TraceContext,
    /// The id of the span that caused it.
    pub parent: Option<u64>,
    /// The action and the store.
    pub name: String,
    /// Its kind.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// When it ended.
    pub end_unix_ns: u64,
    /// Its further attributes.
    pub attributes: SmallVec<[(&'static str, Attribute); 8]>,
    /// Why it failed, in a word; `None` if it did not.
    pub error: Option<Cow<'static, str>>,
}

/// A span that has not ended. It ends when it is dropped, too.
#[derive(Debug)]
pub struct OpenSpan {
    /// `None` once it has ended.
    span: Option<Box<Span>>,
    began: Instant,
    queue: Arc<SpanQueue>,
}

/// The longest code of an error, in bytes.
const CODE_BYTES_MAX: usize = 32;

impl OpenSpan {
    /// Begins the first span of this process for a request, now. Without a parent it is the first of a new trace.
    pub fn root(parent: Option<TraceContext>, name: String, kind: SpanKind, queue: &Arc<SpanQueue>) -> Self {
        let context = parent.map_or_else(TraceContext::new_trace, TraceContext::new_span);
        Self::new(context, parent.map(|parent| parent.span), name, kind, queue)
    }

    /// Begins a span with a parent, now.
    pub(super) fn child(parent: TraceContext, name: String, kind: SpanKind, queue: &Arc<SpanQueue>) -> Self {
        Self::new(parent.new_span(), Some(parent.span), name, kind, queue)
    }

    fn new(context: TraceContext, parent: Option<u64>, name: String, kind: SpanKind, queue: &Arc<SpanQueue>) -> Self {
        let mut attributes = SmallVec::new();
        attributes.push(("db.system.name", "fondaco".into()));
        let span = Span {
            context,
            parent,
            name,
            kind,
            start_unix_ns: now_unix_ns(),
            end_unix_ns: 0,
            attributes,
            error: None,
        };
        Self {
            span: Some(Box::new(span)),
            began: Instant::now(),
            queue: Arc::clone(queue),
        }
    }

    /// It began at this time already.
    pub fn began_at(&mut self, began: Instant) {
        let earlier_ns = self.began.saturating_duration_since(began).as_nanos() as u64;
        self.began -= std::time::Duration::from_nanos(earlier_ns);
        if let Some(span) = &mut self.span {
            span.start_unix_ns = span.start_unix_ns.saturating_sub(earlier_ns);
        }
    }

    /// For the spans of its parts.
    pub fn tracing(&self) -> Option<Tracing> {
        Some(Tracing::new(self.span.as_ref()?.context, &self.queue))
    }

    /// Its context, to be sent along.
    pub fn context(&self) -> Option<TraceContext> {
        Some(self.span.as_ref()?.context)
    }

    /// It turned out to be a step within the process.
    pub(super) fn is_internal(&mut self) {
        if let Some(span) = &mut self.span {
            span.kind = SpanKind::Internal;
        }
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Attribute>) {
        if let Some(span) = &mut self.span {
            span.attributes.push((name, value.into()));
        }
    }

    /// Notes that it failed. Of the error only the code is kept, its first word: the rest may have keys in it.
    pub fn fail(&mut self, error: &str) {
        let code = error.split(' ').next().unwrap_or_default();
        let is_code =
            code.len() <= CODE_BYTES_MAX && !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase());
        let code = if is_code {
            code.to_owned().into()
        } else {
            Cow::Borrowed("_OTHER")
        };
        if let Some(span) = &mut self.span {
            span.error = Some(code);
        }
    }

    /// Ends it now.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.end_unix_ns = span.start_unix_ns + self.began.elapsed().as_nanos() as u64;
            self.queue.push(*span);
        }
    }
}

impl From<&'static str> for Attribute {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Attribute {
    fn from(number: usize) -> Self {
        (number as u64).into()
    }
}

impl From<bool> for Attribute {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_code_and_nothing_else() {
        let queue = Arc::new(SpanQueue::default());
        for (error, code) in [
            ("TIMEOUT no answer for \"secret\"", "TIMEOUT"),
            ("the key secret is bad", "_OTHER"),
            ("", "_OTHER"),
        ] {
            let mut span = OpenSpan::root(None, "GET".into(), SpanKind::Server, &queue);
            span.fail(error);
            span.end();
            assert_eq!(queue.take(1)[0].error.as_deref(), Some(code));
        }
    }

    #[test]
    fn a_span_knows_its_parent_and_its_time() {
        let queue = Arc::new(SpanQueue::default());
        let began = Instant::now();
        let mut root = OpenSpan::root(None, "GET".into(), SpanKind::Server, &queue);
        root.began_at(began);
        let parent = root.context().unwrap();
        root.tracing().unwrap().begin("part".into(), SpanKind::Client).end();
        root.end();
        let spans = queue.take(2);
        assert_eq!((spans[0].parent, spans[1].parent), (Some(parent.span), None));
        assert_eq!(spans[0].context.trace, spans[1].context.trace);
        assert!(spans[1].start_unix_ns <= spans[0].start_unix_ns);
        assert!(spans[1].end_unix_ns >= spans[1].start_unix_ns);
    }
}
