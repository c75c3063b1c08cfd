//! Admission control: how many requests are answered at a time. A request whose body is not complete may lose its place to
//! a later one, so that clients that send half of a body keep no others out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::{Frame, SizeHint};

use crate::connections::{Connection, Connections};
use crate::error::ApiError;

/// How many requests of proven callers are answered at a time, and how many of others.
pub(super) const REQUESTS_MAX: usize = 64;

/// Takes a place for the request, which cannot be taken away once its body is complete.
pub(super) async fn admit(places: &Arc<Connections>, request: Request) -> Result<(Request, Arc<Connection>), ApiError> {
    let busy = || {
        let message = format!("{REQUESTS_MAX} requests are being answered: try again");
        ApiError::new("overloaded", message)
    };
    let place = places.enter_unless_busy().await;
    let place = Arc::new(place.ok_or_else(busy)?);
    if request.body().is_end_stream() {
        return match place.begin() {
            true => Ok((request, place)),
            false => Err(busy()),
        };
    }
    let received = |body| {
        Body::new(Received {
            body,
            place: Arc::clone(&place),
            is_complete: false,
        })
    };
    Ok((request.map(received), place))
}

/// The body of a request, which gives way to other requests until it is complete.
struct Received {
    body: Body,
    place: Arc<Connection>,
    is_complete: bool,
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let has_ended = frame.is_none() || self.body.is_end_stream();
        if has_ended && !std::mem::replace(&mut self.is_complete, has_ended) && !self.place.begin() {
            // It gave way a moment ago, so its work must not begin.
            return Poll::Ready(Some(Err(axum::Error::new("another request has taken its place"))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
