//! The HTTP server: accepts connections, speaks TLS where configured, and serves requests.
//!
//! Each connection is a task of its own from the moment it is accepted, so that a slow handshake or a
//! slow header holds nobody else up; and each has limits on both, so that it cannot stay for nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// How many connections may be open.
const CONNECTIONS_MAX: usize = 256;

/// How long a TLS handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a client may take to send a request's header, also after the request before.
const HEADER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a header may be, in bytes.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// How long to wait after an accept that failed: of file descriptors, for instance, there are none.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// How long a connection may last. Clients connect again; those that stopped reading are got rid of.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);

/// How long a connection's last request may still take.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(60);

/// How long requests may still take when the server ends.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves until `ended` says so.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    mut ended: watch::Receiver<bool>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
            () = end(&mut ended) => break,
        };
        let (stream, client, permit) = accepted;
        let (acceptor, router, ended) = (acceptor.clone(), router.clone(), ended.clone());
        tokio::spawn(async move {
            let _permit = permit;
            // Answers are small and whole: there is nothing to wait for.
            let _ = stream.set_nodelay(true);
            match acceptor {
                None => converse(stream, client, router, ended).await,
                Some(acceptor) => match tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, client, router, ended).await,
                    Ok(Err(error)) => tracing::debug!(%client, %error, "TLS handshake failed"),
                    Err(_) => tracing::debug!(%client, "TLS handshake timed out"),
                },
            }
        });
    }
    drop(listener);
    let all = CONNECTIONS_MAX as u32;
    // Whoever is not done by then is cut off.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, connections.acquire_many(all)).await;
}

type Permit = tokio::sync::OwnedSemaphorePermit;

/// The next connection, once there is room for one.
async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> (TcpStream, SocketAddr, Permit) {
    loop {
        // The semaphore is never closed, so that this always gives a permit.
        let Ok(permit) = Arc::clone(connections).acquire_owned().await else {
            std::future::pending::<()>().await;
            continue;
        };
        match listener.accept().await {
            Ok((stream, client)) => return (stream, client, permit),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_WAIT).await;
            }
        }
    }
}

/// Waits for the server to end; it has when nobody could say so any more.
async fn end(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Waits until the server ends or a connection is too old.
async fn end_or_age(ended: &mut watch::Receiver<bool>) {
    // Both mean the same.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, end(ended)).await;
}

async fn converse<S>(stream: S, client: SocketAddr, router: Router, mut ended: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
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
