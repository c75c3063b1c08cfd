//! `MULTI`, `EXEC` and `DISCARD`: requests that are kept, and then carried out one behind the other.
//!
//! Clients use them to send several writes at once. Nothing more is promised here: requests of other clients may come in
//! between, and what was done before one that failed stays done, as with Redis. `EXEC` puts the requests back in front of what
//! the client has sent behind them, so that they go the way of all requests.

use bytes::BytesMut;
use fondaco_resp::Reply;
use fondaco_resp::command::CommandId;

use super::{Call, Refusal};
use crate::server::session::{Replies, Session};

/// Requests since `MULTI`.
#[derive(Default)]
pub(crate) struct Transaction {
    /// As they came, one behind the other.
    requests: BytesMut,
    count: usize,
    /// Whether there was one that cannot be carried out: then none is.
    is_refused: bool,
}

impl Transaction {
    /// The memory of its requests, in bytes.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.requests.capacity()
    }

    /// Has `EXEC` refuse all of it. Kept requests are dropped.
    pub(in crate::server) fn refuse(&mut self) {
        self.requests = BytesMut::new();
        self.is_refused = true;
    }

    /// Keeps a request.
    ///
    /// # Errors
    /// The error to answer with: it is one that changes which replies there are, or all together would be longer than
    /// `bytes_max`. `EXEC` then refuses all.
    pub(in crate::server) fn keep(
        &mut self,
        command: CommandId,
        request: &[u8],
        bytes_max: usize,
    ) -> Result<(), Refusal> {
        if command == CommandId::ClientReply {
            self.refuse();
            return Err("ERR Command not allowed inside a transaction".into());
        }
        if self.is_refused {
            return Ok(());
        }
        if self.requests.len() + request.len() > bytes_max {
            self.refuse();
            return Err(format!(
                "OVERLOADED requests between MULTI and EXEC have room for {bytes_max} bytes: send fewer at a time"
            ));
        }
        self.requests.extend_from_slice(request);
        self.count += 1;
        Ok(())
    }
}

/// Whether a command is carried out also between `MULTI` and `EXEC`.
pub(in crate::server) fn runs_at_once(command: CommandId) -> bool {
    use CommandId::{Discard, Exec, Multi, Quit, Reset};
    matches!(command, Discard | Exec | Multi | Quit | Reset)
}

pub(super) fn multi(session: &mut Session, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    session.transaction = Some(Box::default());
    reply.ok();
    Ok(())
}

pub(super) fn exec(call: Call<'_>, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let session = call.session;
    let transaction = session.transaction.take().ok_or("ERR EXEC without MULTI")?;
    if transaction.is_refused {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if session.replies == Replies::Skip {
        // The replies of the requests are parts of this one.
        session.replies = Replies::On;
    }
    reply.array(transaction.count);
    session.released = Some(transaction.requests);
    Ok(())
}

pub(super) fn discard(session: &mut Session, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    session.transaction.take().ok_or("ERR DISCARD without MULTI")?;
    reply.ok();
    Ok(())
}
