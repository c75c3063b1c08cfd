//! A process's connection to the coordination service, and its mirror of the entries.
//!
//! It behaves like a ZooKeeper client: one connection at a time, on which messages are ordered; when it breaks, a new
//! connection, on which everything is read again; when the session has expired, a new session. A watch only reports
//! that an entry has changed; then the process reads the current value.

use std::collections::BTreeSet;
use std::sync::Arc;

use fondaco_decisions::{Change, RecordPath};
use fondaco_model::cluster::ClusterView;

use crate::event::{Event, ProcessEvent};
use crate::process::Role;
use crate::record::{self, Read, Value};
use crate::service::SESSION_TIMEOUT_MS;
use crate::world::World;

/// The state of a process's session.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The number of the connection; 0 for none.
    pub(crate) connection: u64,
    pub(crate) session: Option<u64>,
    /// Whether the service has answered on this connection.
    pub(crate) welcome: bool,
    heard_ms: u64,
    /// The number of the read in progress; 0 for none.
    reading: u64,
    everything: bool,
    changed: BTreeSet<RecordPath>,
}

/// A message from a process to the service.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Hello { session: Option<u64> },
    Alive,
    Read { number: u64, paths: BTreeSet<RecordPath> },
    ReadAll { number: u64 },
    Apply { change: Box<Change> },
    PutEphemeral { path: RecordPath, value: Arc<Value> },
    Stand,
}

/// A message from the service to a process.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Welcome {
        session: u64,
        is_new: bool,
    },
    Alive,
    Changed {
        paths: BTreeSet<RecordPath>,
    },
    Entries {
        number: u64,
        all: bool,
        entries: Vec<Read>,
    },
    Snapshot {
        number: u64,
        all: bool,
        view: Arc<ClusterView>,
    },
    Applied,
    Ephemeral {
        path: RecordPath,
        done: bool,
    },
    Leads,
}

impl World {
    /// Sends a request to the service; it may be lost, and the connection with it.
    pub(crate) fn request(&mut self, process: usize, request: Request) {
        let connection = self.processes[process].link.connection;
        let life = self.processes[process].running.life;
        let session = self.processes[process].link.session;
        let arrives = self
            .network
            .on_connection(process, connection, true, self.now_ms, &mut self.rng);
        if let Some(at_ms) = arrives {
            let event = Event::ToService {
                process,
                life,
                connection,
                session,
                request,
            };
            self.at(at_ms, event);
        }
    }

    /// Sends a message to the process of a session.
    fn tell(&mut self, process: usize, life: u32, connection: u64, message: Message) {
        let arrives = self
            .network
            .on_connection(process, connection, false, self.now_ms, &mut self.rng);
        if let Some(at_ms) = arrives {
            let event = ProcessEvent::FromService { connection, message };
            self.at(at_ms, Event::To { process, life, event });
        }
    }

    /// The service receives a request.
    pub(crate) fn serve(&mut self, process: usize, life: u32, connection: u64, session: Option<u64>, request: Request) {
        let now_ms = self.now_ms;
        if let Request::Hello { session } = request {
            let reports = self.processes[process].wants_reports();
            let number = self.service.hello(session, process, connection, reports, now_ms);
            let is_new = session != Some(number);
            let welcome = Message::Welcome {
                session: number,
                is_new,
            };
            return self.tell(process, life, connection, welcome);
        }
        // A process without a session gets no reply, and notices that when it connects again.
        let Some(session) = session.filter(|&session| self.service.heard(session, connection, now_ms)) else {
            return;
        };
        let answer = match request {
            Request::Hello { .. } => return,
            Request::Alive => Message::Alive,
            Request::Read { number, paths } => {
                let all = false;
                match self.scenario.snapshots {
                    false => Message::Entries {
                        number,
                        all,
                        entries: self.service.read(&paths),
                    },
                    true => self.snapshot_for(process, number, all, paths.len()),
                }
            }
            Request::ReadAll { number } => {
                let all = true;
                match self.scenario.snapshots {
                    false => Message::Entries {
                        number,
                        all,
                        entries: self.service.read_all(self.processes[process].wants_reports()),
                    },
                    true => self.snapshot_for(process, number, all, self.service.entries.len()),
                }
            }
            Request::Apply { change } => {
                self.apply(&change);
                Message::Applied
            }
            Request::PutEphemeral { path, value } => {
                let done = self.service.put_ephemeral(session, path.clone(), value);
                Message::Ephemeral { path, done }
            }
            Request::Stand => match self.service.stand(session) {
                true => Message::Leads,
                false => Message::Alive,
            },
        };
        self.tell(process, life, connection, answer);
    }

    /// All entries at once, counted as reads of the requested entries.
    fn snapshot_for(&mut self, process: usize, number: u64, all: bool, entries: usize) -> Message {
        self.service.counts.reads += entries as u64;
        let view = self.service.snapshot(self.processes[process].wants_reports());
        Message::Snapshot { number, all, view }
    }

    /// Schedules notifications of watchers about the changes since their last notification.
    pub(crate) fn arrange_notifications(&mut self) {
        for session in std::mem::take(&mut self.service.to_tell) {
            let soon_ms = self.rng.u64(0..5);
            self.at(self.now_ms + soon_ms, Event::Notify { session });
        }
    }

    /// Notifies a session of changes.
    pub(crate) fn notify(&mut self, session: u64) {
        let paths = self.service.take_changed(session);
        let Some((process, connection)) = self.service.sessions.get(&session).map(|s| (s.process, s.connection)) else {
            return;
        };
        if !paths.is_empty() {
            let life = self.processes[process].running.life;
            self.tell(process, life, connection, Message::Changed { paths });
        }
    }

    /// Expires silent sessions; other candidates may become leader.
    pub(crate) fn expire_sessions(&mut self) {
        let leads = self.service.expire(self.now_ms);
        let session = leads.and_then(|session| self.service.sessions.get(&session));
        if let Some((process, connection)) = session.map(|session| (session.process, session.connection)) {
            let life = self.processes[process].running.life;
            self.tell(process, life, connection, Message::Leads);
        }
    }

    /// A process checks its connection.
    pub(crate) fn tend_link(&mut self, process: usize) {
        let link = &self.processes[process].link;
        let silent = self.now_ms.saturating_sub(link.heard_ms) >= SESSION_TIMEOUT_MS * 2 / 3;
        if link.connection != 0 && !silent && !self.network.is_broken(link.connection) {
            return self.request(process, Request::Alive);
        }
        self.last_connection += 1;
        let connection = self.last_connection;
        let now_ms = self.now_ms;
        let link = &mut self.processes[process].link;
        *link = Link {
            connection,
            session: link.session,
            heard_ms: now_ms,
            ..Link::default()
        };
        let session = link.session;
        if let Role::Controller(leading) = &mut self.processes[process].role {
            leading.under_way = 0;
        }
        self.request(process, Request::Hello { session });
    }

    /// A process receives a message of the service.
    pub(crate) fn hear(&mut self, process: usize, connection: u64, message: Message) {
        let now_ms = self.now_ms;
        let link = &mut self.processes[process].link;
        if link.connection != connection || self.network.is_broken(connection) {
            return;
        }
        link.heard_ms = now_ms;
        match message {
            Message::Alive => {}
            Message::Welcome { session, is_new } => {
                link.session = Some(session);
                link.welcome = true;
                link.everything = true;
                self.connection_began(process, is_new);
                if matches!(self.processes[process].role, Role::Controller(_)) {
                    self.request(process, Request::Stand);
                }
                self.read_on(process);
            }
            Message::Changed { paths } => {
                link.changed.extend(paths);
                self.read_on(process);
            }
            Message::Entries { number, all, entries } => {
                if number != link.reading {
                    return;
                }
                link.reading = 0;
                let mut view = match all {
                    true => ClusterView::default(),
                    false => Arc::unwrap_or_clone(std::mem::take(&mut self.processes[process].view)),
                };
                entries.iter().for_each(|read| record::put(&mut view, read));
                self.see(process, all, view.into());
            }
            Message::Snapshot { number, all, view } => {
                if number != link.reading {
                    return;
                }
                link.reading = 0;
                self.see(process, all, view);
            }
            Message::Applied => self.applied(process),
            Message::Ephemeral { path, done } => self.ephemeral_written(process, &path, done),
            Message::Leads => self.leads(process),
        }
    }

    /// Reads the changed entries, or everything; one read at a time.
    pub(crate) fn read_on(&mut self, process: usize) {
        self.last_read += 1;
        let number = self.last_read;
        let link = &mut self.processes[process].link;
        if !link.welcome || link.reading != 0 {
            return;
        }
        let request = match (link.everything, link.changed.is_empty()) {
            (true, _) => Request::ReadAll { number },
            (false, false) => Request::Read {
                number,
                paths: std::mem::take(&mut link.changed),
            },
            (false, true) => return,
        };
        link.everything = false;
        link.changed.clear();
        link.reading = number;
        self.request(process, request);
    }

    /// Reads everything again.
    pub(crate) fn read_everything(&mut self, process: usize) {
        let link = &mut self.processes[process].link;
        link.everything = true;
        link.reading = 0;
        self.read_on(process);
    }

    /// A process gets a new view.
    fn see(&mut self, process: usize, all: bool, view: Arc<ClusterView>) {
        let seen = &mut self.processes[process];
        // An incomplete old view must not be used: some of its entries may be deleted.
        if !all && !seen.view_is_whole {
            return;
        }
        seen.view = view;
        seen.view_is_whole = true;
        if all && let Role::Controller(leading) = &mut seen.role {
            leading.knows = leading.controller.is_some();
        }
        self.read_on(process);
        self.look(process);
    }

    /// On a new connection, the outcome of the last writes on the old one is unknown; and with a new session,
    /// everything of the old session is gone.
    fn connection_began(&mut self, process: usize, is_new: bool) {
        match &mut self.processes[process].role {
            Role::Node(node) => {
                node.announced = false;
                if let Some(agent) = &mut node.agent {
                    agent.forget_report();
                }
            }
            Role::Controller(leading) if is_new => **leading = Default::default(),
            Role::Reader(reader) => reader.announced = false,
            Role::Controller(_) | Role::Operator => {}
        }
    }

    /// An ephemeral entry was written, or could not be, because another session owns it.
    fn ephemeral_written(&mut self, process: usize, path: &RecordPath, done: bool) {
        if done {
            return;
        }
        match &mut self.processes[process].role {
            Role::Node(node) => match path {
                RecordPath::Announcement(_) => node.announced = false,
                _ => node.agent.iter_mut().for_each(|agent| agent.forget_report()),
            },
            Role::Reader(reader) => reader.announced = false,
            Role::Controller(_) | Role::Operator => {}
        }
    }
}
