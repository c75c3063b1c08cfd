//! One client: requests are read, answered in order, and the replies written.
//!
//! Memory is bounded: nothing is read while replies wait to be written, and replies are written as
//! soon as they pass [`OUTPUT_BYTES_MAX`].

mod cold;
mod forward;
mod input;
mod pipeline;
mod slow;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fondaco_format::ColdRead;
use fondaco_resp::command::{CommandId, Flags, ends_connection, is_http, resolve};
use fondaco_resp::{Arguments, Limits, Parse, Reply, parse_request};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::buffers::Charge;
use super::clients::{Entered, Phase};
use super::commands::versioned::{self, AnsweredGets, First, Gets};
use super::commands::{self, Outcome};
use super::event_loop::LoopContext;
use super::reused::INPUT_BYTES;
use super::session::{Replies, Session};
use super::window::{Admission, OUTPUT_BYTES_MAX, Place, Run, Tally, Window};
use crate::catalog::{Catalog, StoreId};
use crate::metrics::Counter;
use crate::settings::Setting;
use forward::Others;

/// What requests are answered with as long as it is not known which stores there are.
const LOADING: &str = "LOADING this node does not know its cluster and its stores yet: try again; GET /readyz on its control \
                       port says what it waits for";

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
        gets: Gets::default(),
        window: Window::default(),
        output: Vec::new(),
        window_start: 0,
        answered: Vec::new(),
        answered_of: Vec::new(),
        tally: Tally::default(),
    };
    // A client that is gone is no error of ours.
    let _ = connection.run().await;
}

struct Connection<S> {
    context: Rc<LoopContext>,
    stream: S,
    client: Entered,
    session: Session,
    /// What its buffers are charged with.
    charge: Charge,
    /// What it holds besides its buffers.
    held_bytes: usize,
    /// Requests on versioned stores that are under way are parts of its memory, which is the [loop's](super::reused::Reused)
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
    gets: Gets,
    window: Window,
    /// Replies that may be sent. Its memory is the loop's, too, and given back when it waits for requests.
    output: Vec<u8>,
    /// Where in the output the replies of the window begin.
    window_start: usize,
    /// Which commands were answered since the last read, and how often.
    answered: Vec<(CommandId, u64)>,
    /// Of which stores clients' requests were answered since then, and how often.
    answered_of: Vec<(StoreId, u64)>,
    tally: Tally,
}

/// What the input leads to.
enum Turn {
    /// It holds no further request.
    Read,
    /// The look-ups of the window are to be waited for from this place on, in this catalog: beginning
    /// with this read, or until the replies so far are sent.
    Wait(Arc<Catalog>, Place, Option<ColdRead>),
    /// The look-ups of the window are to be answered in this catalog, some of them by other nodes.
    Ask(Arc<Catalog>),
    /// This command is to be carried out; its arguments are parsed.
    Run(CommandId),
    /// The next requests are on versioned stores.
    Pipeline,
    /// The replies are to be written first.
    Write,
}

/// What the next request is.
enum Next {
    /// One that was put into the window.
    LookUp,
    /// A look-up of a versioned store that has been answered, and maybe others of its kind behind it.
    Answered(CommandId, AnsweredGets),
    /// One that is carried out beside others.
    Pipeline,
    Command(CommandId),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.read().await?;
            let mut started = Instant::now();
            self.client.note(Phase::Waiting, self.context.shared.ms_at(started));
            loop {
                self.borrow_output();
                match self.turn() {
                    Turn::Read => break,
                    Turn::Write => self.write(started).await?,
                    Turn::Wait(catalog, place, read) => {
                        let reads = self.start_at(place.key, &catalog, read);
                        self.run_waiting(catalog, place, reads, Others::default(), started)
                            .await?;
                    }
                    Turn::Ask(catalog) => self.run_split(catalog, started).await?,
                    Turn::Run(command) => self.run_command(command).await,
                    Turn::Pipeline => {
                        self.run_pipeline().await?;
                        // It may have read for long.
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

    /// Takes requests from the input and answers look-ups among them, as long as nothing has to be
    /// waited for.
    #[inline]
    fn turn(&mut self) -> Turn {
        let context = Rc::clone(&self.context);
        let limits = self.limits();
        // One catalog for all requests of a turn: a batch look-up never mixes two versions.
        let catalog = context.shared.catalog.load();
        loop {
            if self.session.closing || self.consumed == self.input.len() {
                self.needed = 0;
                return self.run_window(&catalog).unwrap_or(Turn::Read);
            }
            let rest = &self.input[self.consumed..];
            match parse_request(rest, &limits, &mut self.arguments) {
                Ok(Parse::Complete { consumed }) => {
                    self.needed = 0;
                    let resolved = resolve(&self.arguments, rest).and_then(|spec| {
                        let command = spec.id;
                        if !self.session.is_authenticated() && !commands::without_authentication(command) {
                            return Err("NOAUTH Authentication required.".into());
                        }
                        if catalog.is_loading() && !spec.flags.contains(Flags::LOADING) {
                            return Err(LOADING.into());
                        }
                        if pipeline::begins(command, &self.arguments, rest, &catalog) {
                            return Ok(Next::Pipeline);
                        }
                        if Gets::answers(command) && self.window.is_empty() && self.session.replies == Replies::On {
                            let admission = versioned::Admission {
                                catalog: &catalog,
                                session: &self.session,
                                forwarder: &context.forwarder,
                            };
                            let mut reply = Reply::new(&mut self.output, self.session.protocol);
                            let first = First {
                                command,
                                arguments: &self.arguments,
                                bytes: consumed,
                            };
                            let answered = self.gets.answer(first, rest, &limits, &admission, |_| true, &mut reply);
                            if let Some(answered) = answered {
                                return Ok(Next::Answered(command, answered));
                            }
                        }
                        let admission = Admission {
                            catalog: &catalog,
                            session: &self.session,
                            forwarder: &context.forwarder,
                        };
                        let is_look_up = self.window.add(command, &self.arguments, rest, &admission)?;
                        Ok(match is_look_up {
                            true => Next::LookUp,
                            false => Next::Command(command),
                        })
                    });
                    match resolved {
                        Ok(Next::LookUp) => {
                            self.consumed += consumed;
                            if (self.window.is_full() || self.session.replies != Replies::On)
                                && let Some(turn) = self.run_window(&catalog)
                            {
                                return turn;
                            }
                        }
                        Ok(Next::Answered(command, gets)) => {
                            self.consumed += gets.bytes;
                            self.tally.hot += gets.keys;
                            self.tally.absent += gets.absent;
                            note(&mut self.answered, command, gets.requests);
                            note(&mut self.answered_of, gets.store, gets.requests);
                            self.client.note_command(command);
                            self.session.asking = false;
                        }
                        // The replies to what came before go first; then the request is taken again.
                        _ if !self.window.is_empty() => {
                            if let Some(turn) = self.run_window(&catalog) {
                                return turn;
                            }
                        }
                        Ok(Next::Pipeline) => return Turn::Pipeline,
                        Ok(Next::Command(command)) => {
                            self.request_start = self.consumed;
                            self.consumed += consumed;
                            return Turn::Run(command);
                        }
                        // A browser that was led here by a web page: what follows is not from a friend.
                        Err(_) if is_http(self.arguments.get(0, rest).unwrap_or_default()) => {
                            context.metrics.add(Counter::ProtocolErrors, 1);
                            tracing::warn!(client = self.client.address, "dropped a client that speaks HTTP");
                            self.session.closing = true;
                        }
                        Err(error) => {
                            let name = self.arguments.get(0, rest).unwrap_or_default();
                            self.session.closing |= ends_connection(name);
                            self.consumed += consumed;
                            self.session.asking = false;
                            if error.starts_with("MOVED ") {
                                context.metrics.add(Counter::Moved, 1);
                            }
                            let start = self.output.len();
                            self.reply().error(&error);
                            self.mute_from(start);
                        }
                    }
                }
                Ok(Parse::Empty { consumed }) => {
                    self.needed = 0;
                    self.consumed += consumed;
                }
                Ok(Parse::Incomplete { needed }) => {
                    self.needed = needed;
                    return self.run_window(&catalog).unwrap_or(Turn::Read);
                }
                Err(error) => {
                    if let Some(turn) = self.run_window(&catalog) {
                        return turn;
                    }
                    context.metrics.add(Counter::ProtocolErrors, 1);
                    self.reply().error(&format!("ERR {error}"));
                    self.session.closing = true;
                }
            }
            if self.output.len() > OUTPUT_BYTES_MAX && self.window.is_empty() {
                return Turn::Write;
            }
        }
    }

    /// Answers the look-ups of the window; the turn that must follow, if one must.
    #[inline]
    fn run_window(&mut self, catalog: &Arc<Catalog>) -> Option<Turn> {
        if self.window.is_empty() {
            return None;
        }
        self.window_start = self.output.len();
        if self.window.is_split() {
            return Some(Turn::Ask(Arc::clone(catalog)));
        }
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        match self.window.run(catalog, &mut reply, &mut self.tally) {
            Run::Done => {
                self.end_window(catalog);
                (self.output.len() > OUTPUT_BYTES_MAX).then_some(Turn::Write)
            }
            Run::Cold(place, read) => Some(Turn::Wait(Arc::clone(catalog), place, Some(read))),
            Run::Full(place) | Run::Long(place) => Some(Turn::Wait(Arc::clone(catalog), place, None)),
        }
    }

    fn end_window(&mut self, catalog: &Catalog) {
        self.mute_from(self.window_start);
        let mut last = None;
        for (command, store) in self.window.commands(catalog) {
            last = Some(command);
            note(&mut self.answered, command, 1);
            if let Some(store) = store {
                note(&mut self.answered_of, store, 1);
            }
        }
        if let Some(command) = last {
            self.client.note_command(command);
        }
        self.session.asking = false;
        self.window.clear();
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
        let outcome = commands::carry_out(call, &mut reply).await;
        if outcome == Outcome::Failed {
            self.context.metrics.record_error(command);
        }
        // A changed protocol or wish for replies holds from the next reply on.
        match (wanted, self.session.replies) {
            // Who turns them on again is told so, as by Redis.
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

    fn limits(&self) -> Limits {
        let settings = &self.context.shared.settings;
        let limits = Limits {
            bulk_bytes_max: settings.get(Setting::BulkBytesMax) as usize,
            arguments_max: settings.get(Setting::ArgumentsMax) as usize,
            request_bytes_max: request_bytes_max(self.context.shared.config.buffers.bytes_max()),
            ..Limits::default()
        };
        if self.session.is_authenticated() {
            limits
        } else {
            limits.unauthenticated()
        }
    }

    /// Takes a buffer for replies, if there is none.
    fn borrow_output(&mut self) {
        if self.output.capacity() == 0 {
            self.output = self.context.reused.output();
        }
    }

    /// Writes all replies, and gives their buffer back. The client is taken to receive since then.
    async fn write(&mut self, since: Instant) -> io::Result<()> {
        if !self.output.is_empty() {
            self.write_output(since).await?;
        }
        self.context.reused.give_back_output(std::mem::take(&mut self.output));
        self.charge_buffers();
        Ok(())
    }

    /// Charges the connection with the buffers that it has.
    #[inline]
    fn charge_buffers(&mut self) {
        self.charge.set(self.buffer_bytes());
    }

    fn buffer_bytes(&self) -> u64 {
        (self.input.capacity() + self.output.capacity() + self.held_bytes) as u64
    }

    /// So many bytes are held from now on, besides the buffers: requests and answers under way.
    #[inline]
    fn hold(&mut self, bytes: usize) {
        if bytes != self.held_bytes {
            self.held_bytes = bytes;
            self.charge_buffers();
        }
    }

    /// Waits until the connection may have buffers of so many bytes.
    #[inline]
    async fn wait_for_room(&mut self, bytes: usize) {
        if !self.charge.has_room_for(bytes as u64) {
            // It waits for others: the client is not slow.
            self.client.note(Phase::Waiting, self.context.shared.now_ms());
            self.charge.room_for(bytes as u64).await;
        }
    }

    async fn write_output(&mut self, since: Instant) -> io::Result<()> {
        self.charge_buffers();
        self.client.note(Phase::Receiving, self.context.shared.ms_at(since));
        let mut written = 0;
        while written < self.output.len() {
            let count = self.stream.write(&self.output[written..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written += count;
            if written < self.output.len() {
                self.client.note(Phase::Receiving, self.context.shared.now_ms());
            }
        }
        self.stream.flush().await?;
        self.context.metrics.add(Counter::BytesOut, written as u64);
        Ok(())
    }

    /// Counts what was answered since the last read.
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
        let Tally {
            hot,
            cold,
            absent,
            failed,
        } = std::mem::take(&mut self.tally);
        let counts = [
            (Counter::HotLookups, hot),
            (Counter::ColdLookups, cold),
            (Counter::AbsentLookups, absent),
            (Counter::FailedLookups, failed),
        ];
        for (counter, count) in counts {
            self.context.metrics.add(counter, count);
        }
    }
}

/// The longest request, in bytes, whatever memory there is: what one client may make a node buffer.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest request where all connections have so many bytes: its buffer may be twice as long.
fn request_bytes_max(buffer_bytes_max: u64) -> usize {
    usize::try_from(buffer_bytes_max / 2).map_or(REQUEST_BYTES_MAX, |bytes| bytes.min(REQUEST_BYTES_MAX))
}

/// Adds to how often something was there.
fn note<T: PartialEq>(counts: &mut Vec<(T, u64)>, what: T, times: u64) {
    match counts.iter_mut().find(|(known, _)| *known == what) {
        Some((_, count)) => *count += times,
        None => counts.push((what, times)),
    }
}
