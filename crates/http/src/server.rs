//! The HTTP server: accepts connections, speaks TLS where configured, and serves requests.
//!
//! Each connection is a task of its own from the moment it is accepted, so that a slow handshake or a slow header
//! delays no other client. Both have a time limit. When the limit of connections is reached, one that sends no request
//! [gives way](super::connections).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::connections::{Connection, Connections};
use crate::guard::Ambiguous;
use crate::request_heads::{Framing, RequestHeads};

/// How many connections may be open.
const CONNECTIONS_MAX: usize = 256;

/// How long a TLS handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to send a request's header, also after an earlier request.
const HEADER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a header may be, in bytes.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// How long to wait after a failed accept, for instance when no file descriptor is free.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// How long a connection may last. Clients connect again; clients that stopped reading are disconnected.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);

/// How long a connection's last request may still take.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(60);

/// How long requests may still take when the server ends.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves until `ended` is set; connections that gave way to others are counted in `evicted`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    evicted: Arc<AtomicU64>,
    mut ended: watch::Receiver<bool>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let connections = Connections::new(CONNECTIONS_MAX, evicted);
    loop {
        let (stream, client) = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = end(&mut ended) => break,
        };
        let connection = tokio::select! {
            connection = connections.enter() => Arc::new(connection),
            () = end(&mut ended) => break,
        };
        let (acceptor, router, ended) = (acceptor.clone(), router.clone(), ended.clone());
        tokio::spawn(async move {
            // Answers are small and written at once: there is nothing to wait for.
            let _ = stream.set_nodelay(true);
            let serving = async {
                match acceptor {
                    None => converse(stream, client, router, &connection, ended).await,
                    Some(acceptor) => match tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => converse(stream, client, router, &connection, ended).await,
                        Ok(Err(error)) => tracing::debug!(%client, %error, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%client, "TLS handshake timed out"),
                    },
                }
            };
            tokio::select! {
                () = serving => {}
                () = connection.evicted() => {
                    tracing::debug!(%client, "connection without a request dropped: another connection took its place");
                }
            }
        });
    }
    drop(listener);
    // Requests that take longer are cut off.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, connections.all_ended()).await;
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_WAIT).await;
            }
        }
    }
}

/// Waits for the server to end; it has also ended when the sender is dropped.
async fn end(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Waits until the server ends or a connection is too old.
async fn end_or_age(ended: &mut watch::Receiver<bool>) {
    // Both have the same effect.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, end(ended)).await;
}

async fn converse<S>(
    stream: S,
    client: SocketAddr,
    router: Router,
    place: &Arc<Connection>,
    mut ended: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let framing = Framing::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        place.begin();
        let answered = Answered(Arc::clone(place));
        let ends_connection = framing.ends_connection();
        if framing.is_ambiguous() {
            request.extensions_mut().insert(Ambiguous);
        }
        let response = router.call(request);
        async move {
            let response: Result<Response<Body>, Infallible> = response.await;
            response.map(|mut response| {
                if ends_connection {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                // It is answered when all of the body has been sent, and dropped.
                response.map(|body| {
                    body.map_err(move |error| {
                        let _ = &answered;
                        error
                    })
                })
            })
        }
    });
    let stream = RequestHeads::new(stream, HEADER_BYTES_MAX, framing.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => Ok(outcome),
        () = end_or_age(&mut ended) => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(FAREWELL_TIME_MAX, connection).await
        }
    };
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%client, %error, "connection ended"),
        Err(_) => tracing::debug!(%client, "connection was cut off"),
    }
}

/// Marks a connection's request as answered when dropped.
struct Answered(Arc<Connection>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.finish();
    }
}
