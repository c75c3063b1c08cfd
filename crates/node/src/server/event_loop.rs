//! The event loops: one thread each, with a runtime that runs on it alone.
//!
//! The first loop accepts clients and hands each to the loop that has the fewest; it also drops those
//! that are silent or slow, once a second.

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use fondaco_catalog::Setting;
use fondaco_cold::{ColdReads, READS_OF_SOURCES_MAX};
use fondaco_metrics::{Counter, LoopMetrics};
use fondaco_os::priority;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::ServerState;
use super::connection::serve;
use super::loop_memory::LoopMemory;
use super::queue::{self, Batcher};
use super::traced::Sampler;
use crate::forward::Forwarder;

/// Threads of a loop that may wait for the disk: for large values, scans, and where there is no
/// io_uring; and besides those for the sources of versions that are served while they are copied.
const BLOCKING_THREADS_MAX: usize = 16 + READS_OF_SOURCES_MAX;
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of one event loop.
pub(super) struct LoopContext {
    pub(super) shared: Arc<ServerState>,
    pub(super) metrics: Arc<LoopMetrics>,
    pub(super) cold: ColdReads,
    pub(super) forwarder: Forwarder,
    pub(super) loop_memory: LoopMemory,
    pub(super) sampler: Sampler,
    /// This node's replica, through the batcher of the loop; `None` on a router.
    pub(super) replica: Option<Arc<Batcher>>,
}

/// A loop as the accepting one sees it.
struct Inbox {
    streams: mpsc::UnboundedSender<TcpStreamInTransit>,
    clients: Arc<AtomicUsize>,
}

/// A connection on its way from one loop to another, belonging to no runtime.
struct TcpStreamInTransit(std::net::TcpStream);

/// Starts the loops.
pub(super) fn start(
    shared: &Arc<ServerState>,
    listener: TcpListener,
    loops: usize,
    ended: &watch::Receiver<bool>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (inboxes, outlets): (Vec<_>, Vec<_>) = (0..loops)
        .map(|_| {
            let (streams, received) = mpsc::unbounded_channel();
            let clients = Arc::new(AtomicUsize::new(0));
            let inbox = Inbox {
                streams,
                clients: Arc::clone(&clients),
            };
            (inbox, (received, clients))
        })
        .unzip();
    let mut accepting = Some((listener, inboxes));
    let mut threads = Vec::with_capacity(loops);
    for (number, (received, clients)) in outlets.into_iter().enumerate() {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .on_thread_start(priority::wake_soon)
            .build()?;
        let (shared, mut ended) = (Arc::clone(shared), ended.clone());
        let accepting = accepting.take();
        let run = move || {
            priority::wake_soon();
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let metrics = shared.metrics.of_loop(number);
                let replica = shared.config.replicas.clone().map(Batcher::new).map(Arc::new);
                let context = Rc::new(LoopContext {
                    cold: ColdReads::new(Arc::clone(&shared.metrics.cold_reads)),
                    forwarder: Forwarder::new(
                        &shared,
                        Arc::clone(&metrics),
                        replica.clone().map(|replica| replica as _),
                    ),
                    loop_memory: LoopMemory::default(),
                    sampler: Sampler::default(),
                    replica: replica.clone(),
                    metrics,
                    shared,
                });
                if let Some(replica) = replica {
                    tokio::task::spawn_local(Arc::clone(&replica).hand_over());
                    tokio::task::spawn_local(queue::tell(Rc::clone(&context), replica));
                }
                if let Some((listener, inboxes)) = accepting {
                    tokio::task::spawn_local(accept(Rc::clone(&context), listener, inboxes));
                    tokio::task::spawn_local(sweep(Rc::clone(&context)));
                }
                tokio::select! {
                    () = receive(context, received, clients) => {}
                    _ = ended.wait_for(|&ended| ended) => {}
                }
            });
            // Connections end here; work that waits for the disk may outlast them for a moment.
            drop(local);
            runtime.shutdown_timeout(Duration::from_secs(1));
        };
        threads.push(std::thread::Builder::new().name(format!("loop-{number}")).spawn(run)?);
    }
    Ok(threads)
}

async fn accept(context: Rc<LoopContext>, listener: TcpListener, inboxes: Vec<Inbox>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot accept clients"),
    };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, as a rule: leave some for the clients that are connected.
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if context.shared.metrics.clients() >= context.shared.settings.get(Setting::ClientsMax) {
            context.metrics.add(Counter::ClientsRefused, 1);
            tokio::task::spawn_local(refuse(stream));
            continue;
        }
        context.metrics.add(Counter::ClientsAccepted, 1);
        context.shared.metrics.clients.fetch_add(1, Relaxed);
        let Some(least) = inboxes.iter().min_by_key(|inbox| inbox.clients.load(Relaxed)) else {
            return;
        };
        least.clients.fetch_add(1, Relaxed);
        let Ok(stream) = stream.into_std() else { continue };
        if least.streams.send(TcpStreamInTransit(stream)).is_err() {
            return;
        }
    }
}

async fn refuse(mut stream: TcpStream) {
    let refusal = stream.write_all(b"-ERR max number of clients reached\r\n");
    let _ = tokio::time::timeout(Duration::from_secs(1), refusal).await;
}

async fn receive(
    context: Rc<LoopContext>,
    mut received: mpsc::UnboundedReceiver<TcpStreamInTransit>,
    clients: Arc<AtomicUsize>,
) {
    /// Counts a client out, however its task ends.
    struct Leaving(Rc<LoopContext>, Arc<AtomicUsize>);
    impl Drop for Leaving {
        fn drop(&mut self) {
            self.0.shared.metrics.clients.fetch_sub(1, Relaxed);
            self.1.fetch_sub(1, Relaxed);
        }
    }
    while let Some(TcpStreamInTransit(stream)) = received.recv().await {
        let leaving = Leaving(Rc::clone(&context), Arc::clone(&clients));
        let Ok(stream) = TcpStream::from_std(stream) else {
            continue;
        };
        let (client, context) = (
            context.shared.clients.enter(&stream, &context.shared),
            Rc::clone(&context),
        );
        let registered = client.clone();
        let task = tokio::task::spawn_local(async move {
            let _leaving = leaving;
            let _ = stream.set_nodelay(true);
            match context.shared.config.tls.clone() {
                None => serve(context, stream, client).await,
                Some(tls) => {
                    let handshake = tokio_rustls::TlsAcceptor::from(tls).accept(stream);
                    if let Ok(Ok(stream)) = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, handshake).await {
                        serve(context, stream, client).await;
                    }
                }
            }
        });
        registered.set_task(task.abort_handle());
    }
}

/// Drops clients that are silent, or slow, for longer than the settings allow.
async fn sweep(context: Rc<LoopContext>) {
    let mut period = tokio::time::interval(SWEEP_PERIOD);
    loop {
        period.tick().await;
        let dropped = context.shared.clients.drop_overdue(&context.shared);
        context.metrics.add(Counter::ClientsTimedOut, dropped);
    }
}
