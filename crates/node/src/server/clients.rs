//! The connected clients: for the `CLIENT` commands, and to drop silent and slow ones.
//!
//! The list is locked when a client comes, goes, or is asked about; never by a look-up. The fields
//! that change with each request are atomics, which the client's own loop writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fondaco_catalog::Setting;
use fondaco_resp::command::CommandId;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::ServerState;

/// All connected clients.
#[derive(Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    connected: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// One client.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) address: String,
    local_address: String,
    connected_ms: u64,
    active_ms: AtomicU64,
    phase: AtomicU8,
    last_command: AtomicU8,
    task: OnceLock<AbortHandle>,
    described: Mutex<Described>,
}

/// The description that a client gives of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    pub(crate) user: String,
    pub(crate) protocol: i64,
}

/// The activity of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has sent no request that is not answered.
    Idle = 0,
    /// It has sent a part of a request.
    Sending = 1,
    /// Its request is being answered.
    Waiting = 2,
    /// It is being sent its replies.
    Receiving = 3,
}

/// A client that is entered in the list, until this is dropped.
#[derive(Clone)]
pub(crate) struct Entered(Arc<Inner>);

struct Inner {
    client: Arc<Client>,
    shared: Arc<ServerState>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.clients.lock().remove(&self.client.id);
    }
}

impl std::ops::Deref for Entered {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0.client
    }
}

impl Clients {
    /// Enters a client that has just connected.
    pub(super) fn enter(&self, stream: &TcpStream, shared: &Arc<ServerState>) -> Entered {
        let text = |address: std::io::Result<std::net::SocketAddr>| address.map_or("?".into(), |a| a.to_string());
        let now_ms = shared.now_ms();
        let client = Arc::new(Client {
            id: self.last_id.fetch_add(1, Relaxed) + 1,
            address: text(stream.peer_addr()),
            local_address: text(stream.local_addr()),
            connected_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            phase: AtomicU8::new(Phase::Idle as u8),
            last_command: AtomicU8::new(u8::MAX),
            task: OnceLock::new(),
            described: Mutex::new(Described {
                user: "default".into(),
                protocol: 2,
                ..Described::default()
            }),
        });
        self.lock().insert(client.id, Arc::clone(&client));
        Entered(Arc::new(Inner {
            client,
            shared: Arc::clone(shared),
        }))
    }

    /// All clients, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    /// Drops the clients that have been silent or slow for too long. Returns how many.
    pub(super) fn drop_overdue(&self, shared: &ServerState) -> u64 {
        let now_ms = shared.now_ms();
        let idle_ms_max = shared.settings.get(Setting::ClientIdleSeconds) * 1000;
        let stall_ms_max = shared.settings.get(Setting::ClientStallSeconds) * 1000;
        let overdue = |client: &&Arc<Client>| {
            let silent_ms = now_ms.saturating_sub(client.active_ms.load(Relaxed));
            match client.phase() {
                Phase::Idle => idle_ms_max > 0 && silent_ms > idle_ms_max,
                Phase::Sending | Phase::Receiving => silent_ms > stall_ms_max,
                Phase::Waiting => false,
            }
        };
        let clients = self.all();
        clients
            .iter()
            .filter(overdue)
            .map(|client| client.drop_connection())
            .count() as u64
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.connected.lock()
    }
}

impl Client {
    pub(super) fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Ends the connection from outside.
    pub(crate) fn drop_connection(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Notes what the client does now. Only its own loop.
    #[inline]
    pub(super) fn note(&self, phase: Phase, now_ms: u64) {
        self.phase.store(phase as u8, Relaxed);
        self.active_ms.store(now_ms, Relaxed);
    }

    #[inline]
    pub(super) fn note_command(&self, command: CommandId) {
        self.last_command.store(command as u8, Relaxed);
    }

    pub(crate) fn local_address(&self) -> &str {
        &self.local_address
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Sending,
            2 => Phase::Waiting,
            _ => Phase::Receiving,
        }
    }

    pub(crate) fn described(&self) -> MutexGuard<'_, Described> {
        self.described.lock()
    }

    /// The client as a line of `CLIENT LIST`.
    pub(crate) fn line(&self, now_ms: u64) -> String {
        let described = self.described().clone();
        let command = fondaco_resp::command::all()
            .flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
            .find(|spec| spec.id as u8 == self.last_command.load(Relaxed))
            .map_or("NULL", |spec| spec.name);
        format!(
            "id={} addr={} laddr={} name={} age={} idle={} flags=N db=0 sub=0 psub=0 multi=-1 cmd={command} user={} \
             lib-name={} lib-ver={} resp={}",
            self.id,
            self.address,
            self.local_address,
            described.name,
            now_ms.saturating_sub(self.connected_ms) / 1000,
            now_ms.saturating_sub(self.active_ms.load(Relaxed)) / 1000,
            described.user,
            described.library_name,
            described.library_version,
            described.protocol,
        )
    }
}

impl ServerState {
    /// Milliseconds since the server was started.
    pub(crate) fn now_ms(&self) -> u64 {
        self.ms_at(Instant::now())
    }

    pub(crate) fn ms_at(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}
