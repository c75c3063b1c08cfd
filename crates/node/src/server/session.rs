//! The state that a connection has agreed on: protocol, user, and the replies that it wants.

use bytes::BytesMut;
use fondaco_catalog::{Catalog, SharedAccess, User};
use fondaco_model::StoreName;
use fondaco_resp::Protocol;

use super::commands::transactions::Transaction;
use super::event_loop::LoopContext;
use super::traced::Announced;
use super::{ServerState, refusal};
use crate::forward::Forwarder;

/// The state of one connection between requests.
pub(crate) struct Session {
    pub(crate) protocol: Protocol,
    /// The user of the client; `None` where there are no users, or before it has authenticated.
    user: Option<User>,
    authenticated: bool,
    /// How often the users had changed when this was last looked at.
    turn: u64,
    /// The nonce that the client's next proof has to be of.
    pub(crate) challenge: Option<String>,
    /// How often the client gave a wrong password on this connection.
    pub(crate) wrong_passwords: u32,
    pub(crate) replies: Replies,
    /// Requests since `MULTI`; none where that was not said.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// Requests that `EXEC` has released, to be carried out next.
    pub(crate) released: Option<BytesMut>,
    /// Whether the client knows which node has which slot, and goes there.
    pub(crate) follows_slots: bool,
    /// Whether its next request is to be answered here all the same.
    pub(crate) asking: bool,
    /// The trace of the next request on data, if the client has announced one.
    pub(crate) announced_trace: Option<Announced>,
    /// Whether the connection ends after the replies that are due.
    pub(crate) closing: bool,
}

/// The replies that a client wants (`CLIENT REPLY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not to the next command.
    SkipNext,
    /// Not to the command that is carried out.
    Skip,
}

/// The state that a request is checked against before it is let in: the present stores, the client's rights, and the room for keys under way.
pub(super) struct Admission<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) session: &'a Session,
    pub(super) forwarder: &'a Forwarder,
}

impl<'a> Admission<'a> {
    #[inline]
    pub(super) fn new(catalog: &'a Catalog, session: &'a Session, context: &'a LoopContext) -> Self {
        let forwarder = &context.forwarder;
        Self {
            catalog,
            session,
            forwarder,
        }
    }
}

impl Session {
    pub(crate) fn new(shared: &ServerState) -> Self {
        Self {
            protocol: Protocol::Resp2,
            user: None,
            authenticated: shared.config.access.load().is_open(),
            turn: shared.config.access.turn(),
            challenge: None,
            wrong_passwords: 0,
            replies: Replies::On,
            transaction: None,
            released: None,
            follows_slots: false,
            asking: false,
            announced_trace: None,
            closing: false,
        }
    }

    /// Whether the client may give commands.
    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Looks again at what the client may do, if the users have changed: one that is gone or has another password ends.
    #[inline]
    pub(crate) fn follow_users(&mut self, users: &SharedAccess) {
        if self.turn != users.turn() {
            self.reload_user(users);
        }
    }

    #[cold]
    fn reload_user(&mut self, users: &SharedAccess) {
        self.turn = users.turn();
        let access = users.load();
        match &self.user {
            None => self.authenticated = self.authenticated && access.is_open(),
            Some(user) => match access.user(&user.name).filter(|now| now.password == user.password) {
                Some(now) => self.user = Some(now.clone()),
                None => self.closing = true,
            },
        }
    }

    pub(crate) fn log_in(&mut self, user: User) {
        self.user = Some(user);
        self.authenticated = true;
    }

    /// Whether the client gets the addresses of nodes that have keys, instead of their values.
    #[inline]
    pub(crate) fn goes_where_keys_are(&self) -> bool {
        self.follows_slots && !self.asking
    }

    /// Whether the client may change settings and drop other clients.
    pub(crate) fn may_administer(&self) -> bool {
        self.user.as_ref().map_or(self.authenticated, |user| user.admin)
    }

    /// The user that the client is; `None` where there are no users, or before it said so.
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// The place of the store of this name, if the client may read it.
    ///
    /// # Errors
    /// The error to answer with. It does not tell whether there is a store that the client may not read.
    pub(crate) fn readable_store(&self, catalog: &Catalog, name: &[u8]) -> Result<u16, String> {
        let place = catalog.store_on_wire(name);
        if let Some(place) = place
            && self.may_read(&catalog.stores()[place as usize].name)
        {
            return Ok(place);
        }
        // No store ever has a name that is not valid, so that this tells nothing.
        let parsed = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        match parsed {
            Some(name) if !self.may_read(&name) => Err(refusal::no_right_to_read(&name)),
            _ => Err(refusal::no_store(name)),
        }
    }

    /// Whether the client may read a store.
    #[inline]
    pub(crate) fn may_read(&self, store: &StoreName) -> bool {
        match &self.user {
            None => self.authenticated,
            Some(user) => user.may_read(store),
        }
    }

    /// Whether the client may write a store.
    pub(crate) fn may_write(&self, store: &StoreName) -> bool {
        match &self.user {
            None => self.authenticated,
            Some(user) => user.may_write(store),
        }
    }
}
