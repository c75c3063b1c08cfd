//! Spans of sampled requests: what is noted of a request, and of its parts.
//!
//! A sampled request has a [`Tracing`]. The client library finds that of the future that is polled (see [`within`]),
//! makes a span for each request to a node, and sends the span's context along. Spans that have ended are in a
//! bounded [`SpanQueue`], from which an exporter takes and sends them. A request without a `Tracing` costs one read
//! of a thread-local variable. Spans name stores, commands and nodes: never keys or values.

mod parts;
mod queue;
mod span;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use fondaco_protocol::TraceContext;

pub(crate) use parts::{Parts, Sent};
pub use queue::{SPANS_MAX, SpanCounts, SpanQueue};
pub use span::{Attribute, OpenSpan, Span, SpanKind};

/// The span that spans of parts of a request belong to, and the queue that they go to.
#[derive(Debug, Clone)]
pub struct Tracing(Arc<Parent>);

#[derive(Debug)]
struct Parent {
    context: TraceContext,
    queue: Arc<SpanQueue>,
}

thread_local! {
    /// Whether there is a current tracing: all that requests without one look at.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Tracing>> = const { RefCell::new(None) };
}

impl Tracing {
    /// Spans of parts have this parent, and go to this queue.
    pub fn new(context: TraceContext, queue: &Arc<SpanQueue>) -> Self {
        let queue = Arc::clone(queue);
        Self(Arc::new(Parent { context, queue }))
    }

    /// The tracing of the future that is polled on this thread, if it has one.
    #[inline]
    pub fn current() -> Option<Self> {
        match IS_TRACED.get() {
            false => None,
            true => CURRENT.with_borrow(Clone::clone),
        }
    }

    /// The context of the parent.
    pub fn context(&self) -> TraceContext {
        self.0.context
    }

    /// Begins the span of a part.
    pub fn begin(&self, name: String, kind: SpanKind) -> OpenSpan {
        OpenSpan::child(self.0.context, name, kind, &self.0.queue)
    }

    /// Makes it the current one of the thread until the result is dropped.
    fn enter(&self) -> Entered {
        let former = CURRENT.replace(Some(self.clone()));
        IS_TRACED.set(true);
        Entered(former)
    }
}

/// Restores the former current tracing.
struct Entered(Option<Tracing>);

impl Drop for Entered {
    fn drop(&mut self) {
        let former = self.0.take();
        IS_TRACED.set(former.is_some());
        CURRENT.set(former);
    }
}

/// Runs a future with this current tracing, if there is one.
pub async fn within<F: Future>(tracing: Option<Tracing>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = tracing.as_ref().map(Tracing::enter);
        future.as_mut().poll(context)
    })
    .await
}

/// Calls a function with this current tracing, if there is one.
pub fn call_within<T>(tracing: Option<&Tracing>, call: impl FnOnce() -> T) -> T {
    let _entered = tracing.map(Tracing::enter);
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_future_within_has_the_tracing() {
        let queue = Arc::new(SpanQueue::default());
        let tracing = Tracing::new(TraceContext::new_trace(), &queue);
        let seen = || Tracing::current().map(|current| current.context());
        assert_eq!(seen(), None);
        let inner = async {
            tokio::task::yield_now().await;
            let outer = seen();
            let other = Tracing::new(TraceContext::new_trace(), &queue);
            let wanted = Some(other.context());
            assert_eq!(within(Some(other), async { seen() }).await, wanted);
            assert_eq!(within(None, async { seen() }).await, outer);
            outer
        };
        let (inside, outside) = tokio::join!(within(Some(tracing.clone()), inner), async { seen() });
        assert_eq!((inside, outside), (Some(tracing.context()), None));
        assert_eq!(call_within(Some(&tracing), seen), inside);
        assert_eq!(seen(), None);
    }
}
