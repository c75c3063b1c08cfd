//! One client: requests are read, answered in order, and the replies written.
//!
//! Memory is bounded: nothing is read while replies wait to be written, and replies are written as
//! soon as they pass [`OUTPUT_BYTES_MAX`].

mod cold;
mod default_store;
mod forward;
mod input;
mod output;
mod queue;
mod refusing;
mod requests;
mod sampling;
mod slow;
mod traced;

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use default_store::Naming;
use fondaco_catalog::{Catalog, StoreId};
use fondaco_client::trace::within;
use fondaco_format::ColdRead;
use fondaco_resp::command::CommandId;
use fondaco_resp::{Arguments, Reply, Skip};
use forward::Others;
use requests::Pause;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::buffers::Charge;
use super::clients::{Entered, Phase};
use super::commands::{self, Outcome};
use super::event_loop::LoopContext;
use super::loop_memory::INPUT_BYTES;
use super::queue::RequestQueue;
use super::queue::memory::MemoryReads;
use super::session::{Replies, Session};
use super::traced::{Chosen, RequestTrace};
use super::window::{Tally, Window, WindowCursor};

/// The most bytes of a long request or reply that are moved before the other clients of the loop have their turn.
const TURN_BYTES: usize = 256 * 1024;

/// Serves a client until it leaves, breaks the protocol, or is dropped.
pub(super) async fn serve<S>(context: Rc<LoopContext>, stream: S, client: Entered)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let session = Session::new(&context.shared);
    let charge = context.shared.config.buffers.charge();
    let mut connection = Connection {
        context,
        stream,
        client,
        session,
        charge,
        held_bytes: 0,
        input: BytesMut::new(),
        input_room: INPUT_BYTES,
        consumed: 0,
        request_start: 0,
        needed: 0,
        arguments: Arguments::new(),
        skip: None,
        naming: Naming::default(),
        reads: MemoryReads::default(),
        window: Window::default(),
        queue: None,
        unsent: Vec::new(),
        has_ended: false,
        output: Vec::new(),
        window_start: 0,
        answered: Vec::new(),
        answered_of: Vec::new(),
        tally: Tally::default(),
        waited_in_vain: None,
        chosen: None,
        trace: None,
    };
    // A client that is gone is no error of ours.
    let _ = connection.run().await;
}

struct Connection<S> {
    context: Rc<LoopContext>,
    stream: S,
    client: Entered,
    session: Session,
    /// The charge for its buffers.
    charge: Charge,
    /// The charges of long answers that are in the output.
    unsent: Vec<Charge>,
    /// The bytes that it holds besides its buffers.
    held_bytes: usize,
    /// Requests on versioned stores that are under way are parts of its memory, which is the [loop's](super::loop_memory::LoopMemory)
    /// and given back when all of it was taken.
    input: BytesMut,
    /// How much is read into it at once.
    input_room: usize,
    /// How much of the input was taken.
    consumed: usize,
    /// Where the last request that was taken begins: its arguments are places behind that.
    request_start: usize,
    /// How long the rest of the input must become before there is anything new in it.
    needed: usize,
    arguments: Arguments,
    /// A request that is skipped: one of its arguments is over the limit.
    skip: Option<Skip>,
    naming: Naming,
    /// Look-ups that wait to be answered from memory, while requests are taken.
    reads: MemoryReads,
    window: Window,
    /// Requests on versioned stores that are under way side by side; `None` while no such request is. Its memory is the loop's.
    queue: Option<Box<RequestQueue>>,
    /// Whether the client sends no more.
    has_ended: bool,
    /// Replies that may be sent. Its memory is the loop's, too, and given back when it waits for requests.
    output: Vec<u8>,
    /// Where in the output the replies of the window begin.
    window_start: usize,
    /// The commands that were answered since the last read, and how often.
    answered: Vec<(CommandId, u64)>,
    /// The stores of clients' requests that were answered since then, and how often.
    answered_of: Vec<(StoreId, u64)>,
    tally: Tally,
    /// When it last waited in vain for a newer list of stores.
    waited_in_vain: Option<Instant>,
    /// The next request, if it is to be traced.
    chosen: Option<Chosen>,
    /// The spans of the request that is carried out, if it is traced.
    trace: Option<Box<RequestTrace>>,
}

/// The next step after requests were taken from the input.
enum Turn {
    /// It holds no further request.
    Read,
    /// The look-ups of the window are to be waited for from this place on, in this catalog: beginning
    /// with this read, or until the replies so far are sent.
    Wait(Arc<Catalog>, WindowCursor, Option<ColdRead>),
    /// The look-ups of the window are to be answered in this catalog, some of them by other nodes.
    Ask(Arc<Catalog>),
    /// This command is to be carried out; its arguments are parsed.
    Run(CommandId),
    /// Requests are to be carried out side by side; no more are let in for this reason.
    Queue(Pause),
    /// The replies are to be written first.
    Write,
    /// The store of the next request is not known: a newer list of stores is to be waited for.
    AwaitStores,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.read().await?;
            let mut started = Instant::now();
            self.client.note(Phase::Waiting, self.context.shared.ms_at(started));
            loop {
                self.borrow_output();
                match self.take_requests(started) {
                    Turn::Read => break,
                    Turn::Write => self.write(started).await?,
                    Turn::Wait(catalog, place, read) => {
                        let reads = self.start_at(place.key, &catalog, read);
                        self.run_waiting(catalog, place, reads, Others::default(), started)
                            .await?;
                    }
                    Turn::Ask(catalog) => self.run_split(catalog, started).await?,
                    Turn::Run(command) => self.run_command(command).await,
                    Turn::AwaitStores => self.await_stores().await,
                    Turn::Queue(pause) => {
                        self.run_queue(pause, started).await?;
                        // It may have waited for long.
                        started = Instant::now();
                    }
                }
            }
            self.write(started).await?;
            let ended = Instant::now();
            self.count(ended - started);
            if self.session.closing {
                return self.stream.shutdown().await;
            }
            self.keep_rest(ended);
        }
    }

    /// Carries out a command that is not a look-up.
    async fn run_command(&mut self, command: CommandId) {
        let start = self.output.len();
        let request = &self.input[self.request_start..self.consumed];
        let arguments: Vec<&[u8]> = self.arguments.iter(request).collect();
        let wanted = self.session.replies;
        if wanted == Replies::SkipNext {
            self.session.replies = Replies::Skip;
        }
        let call = commands::Call {
            context: &self.context,
            client: &self.client,
            session: &mut self.session,
            command,
            arguments: &arguments,
        };
        let mut reply = Reply::new(&mut self.output, call.session.protocol);
        let tracing = self.trace.as_ref().and_then(|trace| trace.tracing());
        let outcome = {
            // Pinned here: a future that is an argument of another one is in it twice.
            let work = pin!(commands::carry_out(call, &mut reply));
            within(tracing, work).await
        };
        if outcome == Outcome::Failed {
            self.context.metrics.record_error(command);
        }
        if self.trace.is_some() {
            self.end_trace(start, outcome == Outcome::Failed);
        }
        // A changed protocol or wish for replies holds from the next reply on.
        match (wanted, self.session.replies) {
            // Turning them on again is answered, as by Redis.
            (Replies::On, _) | (_, Replies::On) => {}
            (_, Replies::Skip) => {
                self.output.truncate(start);
                self.session.replies = Replies::On;
            }
            _ => self.output.truncate(start),
        }
        self.session.asking &= command == CommandId::Asking;
        note(&mut self.answered, command, 1);
        self.client.note_command(command);
        if let Some(requests) = self.session.released.take() {
            self.take_first(requests);
        }
    }

    /// Takes back the replies from here on, if the client does not want them.
    fn mute_from(&mut self, start: usize) {
        match self.session.replies {
            Replies::On => {}
            Replies::Off => self.output.truncate(start),
            Replies::SkipNext | Replies::Skip => {
                self.output.truncate(start);
                self.session.replies = Replies::On;
            }
        }
    }

    fn reply(&mut self) -> Reply<'_> {
        Reply::new(&mut self.output, self.session.protocol)
    }

    /// Counts the requests that were answered since the last read.
    fn count(&mut self, took: Duration) {
        if took >= slow::threshold(&self.context.shared) {
            self.keep_slow(took);
        }
        for (command, count) in self.answered.drain(..) {
            self.context.metrics.record(command, took, count);
        }
        for (store, count) in self.answered_of.drain(..) {
            self.context.metrics.record_store(store, took, count);
        }
        std::mem::take(&mut self.tally).count_in(&self.context.metrics);
    }
}

/// Adds to how often something was there.
fn note<T: PartialEq>(counts: &mut Vec<(T, u64)>, what: T, times: u64) {
    match counts.iter_mut().find(|(known, _)| *known == what) {
        Some((_, count)) => *count += times,
        None => counts.push((what, times)),
    }
}
