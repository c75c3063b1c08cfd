//! A connection that is read one request at a time, so that headers are seen as they were sent.
//!
//! A request with both `Content-Length` and `Transfer-Encoding` has a body that two programs may measure differently:
//! bytes that one reads as the rest of the body, the other reads as a new request. Behind a proxy, a client could
//! smuggle requests past it that way. hyper drops the length silently, so it is checked here.
//!
//! A header is passed on when it is complete, and nothing after it before its body has been read. A body without a
//! length ends the connection ([`Framing::ends_connection`]): its end is not searched for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes are read at a time.
const READ_BYTES: usize = 8 << 10;

/// How many bytes are sent by one system call at most: most kernels for servers do not preempt a call, and event loops
/// that have woken up would wait for it.
const SENT_BYTES_MAX: usize = 64 << 10;

/// The length of the body, according to the head that was passed on last.
#[derive(Debug, Clone, Default)]
pub(super) struct Framing(Arc<AtomicU8>);

const HAS_LENGTH: u8 = 1;
const HAS_CODING: u8 = 2;

impl Framing {
    /// Whether it gives the length of the body in two ways.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.0.load(Relaxed) == HAS_LENGTH | HAS_CODING
    }

    /// Whether the connection must end after its answer.
    pub(super) fn ends_connection(&self) -> bool {
        self.0.load(Relaxed) & HAS_CODING != 0
    }
}

/// The connection.
pub(super) struct RequestHeads<S> {
    stream: S,
    /// The longest header, in bytes: a longer one is passed on as it is, to be refused.
    header_bytes_max: usize,
    framing: Framing,
    /// Bytes that were read and not passed on yet.
    buffer: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// A header is being read.
    Head,
    /// This number of bytes of the buffer is a whole header, followed by this number of bytes of a body.
    Handing(usize, u64),
    /// This number of bytes of a body is left.
    Body(u64),
    /// All further bytes are passed on.
    Rest,
}

impl<S> RequestHeads<S> {
    pub(super) fn new(stream: S, header_bytes_max: usize, framing: Framing) -> Self {
        Self {
            stream,
            header_bytes_max,
            framing,
            buffer: Vec::new(),
            state: State::Head,
        }
    }

    /// Passes on bytes of the buffer, as far as there is room. Returns how many.
    fn hand_on(&mut self, most: usize, output: &mut ReadBuf<'_>) -> usize {
        let count = most.min(self.buffer.len()).min(output.remaining());
        output.put_slice(&self.buffer[..count]);
        self.buffer.drain(..count);
        count
    }

    /// Looks for the end of the header.
    fn find_end(&mut self) {
        let Some(end) = end_of_head(&self.buffer) else {
            if self.buffer.len() > self.header_bytes_max {
                self.state = State::Rest;
            }
            return;
        };
        let (length, has_coding) = framing_of(&self.buffer[..end]);
        let found = if length.is_some() { HAS_LENGTH } else { 0 } | if has_coding { HAS_CODING } else { 0 };
        self.framing.0.store(found, Relaxed);
        self.state = match has_coding {
            true => State::Rest,
            false => State::Handing(end, length.unwrap_or(0)),
        };
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestHeads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.state {
                State::Head if !this.buffer.is_empty() => this.find_end(),
                State::Handing(0, body) => {
                    this.state = if body == 0 { State::Head } else { State::Body(body) };
                    continue;
                }
                State::Handing(head, body) => {
                    let count = this.hand_on(head, output);
                    this.state = State::Handing(head - count, body);
                    return Poll::Ready(Ok(()));
                }
                State::Body(0) => {
                    this.state = State::Head;
                    continue;
                }
                State::Body(left) if !this.buffer.is_empty() => {
                    let count = this.hand_on(usize::try_from(left).unwrap_or(usize::MAX), output);
                    this.state = State::Body(left - count as u64);
                    return Poll::Ready(Ok(()));
                }
                State::Rest if !this.buffer.is_empty() => {
                    this.hand_on(usize::MAX, output);
                    return Poll::Ready(Ok(()));
                }
                State::Rest => return Pin::new(&mut this.stream).poll_read(context, output),
                State::Head | State::Body(_) => {}
            }
            if !matches!(this.state, State::Head | State::Body(_)) {
                continue;
            }
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // The end: an incomplete header is passed on, and then nothing.
                this.state = State::Rest;
            }
            this.buffer.extend_from_slice(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RequestHeads<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, &bytes[..bytes.len().min(SENT_BYTES_MAX)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut room = SENT_BYTES_MAX;
        let fits = |part: &&io::IoSlice<'_>| room.checked_sub(part.len()).map(|left| room = left).is_some();
        match (parts.iter().take_while(fits).count(), parts.first()) {
            (0, Some(first)) => self.poll_write(context, first),
            (count, _) => Pin::new(&mut self.stream).poll_write_vectored(context, &parts[..count]),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The end of a header, after the empty line. As in hyper, lines may end without a carriage return.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    // Empty lines before a request are skipped.
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let mut at = start;
    while let Some(line) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        let end = at + line + 1;
        if matches!(&bytes[at..end], b"\n" | b"\r\n") {
            return Some(end);
        }
        at = end;
    }
    None
}

/// The length of the body according to a header, and whether the header has a transfer coding.
fn framing_of(head: &[u8]) -> (Option<u64>, bool) {
    let (mut length, mut has_coding) = (None, false);
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let name = line[..colon].trim_ascii();
        has_coding |= name.eq_ignore_ascii_case(b"transfer-encoding");
        if name.eq_ignore_ascii_case(b"content-length") {
            let value = std::str::from_utf8(&line[colon + 1..]).ok();
            // The server refuses a length that is not a number.
            length = length.or(Some(value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)));
        }
    }
    (length, has_coding)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The bytes of a client that are passed on, read by read, with the framing known at that time.
    async fn handed_on(sent: &[&[u8]]) -> Vec<(String, u8)> {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let framing = Framing::default();
        let mut heads = RequestHeads::new(server, 64, framing.clone());
        for part in sent {
            client.write_all(part).await.unwrap();
        }
        drop(client);
        let mut found = Vec::new();
        let mut buffer = [0; 256];
        loop {
            let count = heads.read(&mut buffer).await.unwrap();
            if count == 0 {
                return found;
            }
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            found.push((text, framing.0.load(Relaxed)));
        }
    }

    fn run(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(future);
    }

    #[test]
    fn consecutive_requests_are_passed_on_one_at_a_time() {
        run(async {
            let sent: &[u8] =
                b"GET / HTTP/1.1\r\na: b\r\n\r\nPUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /x HTTP/1.1\n\n";
            let expected = [
                ("GET / HTTP/1.1\r\na: b\r\n\r\n".to_owned(), 0),
                ("PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\n".to_owned(), HAS_LENGTH),
                ("abc".to_owned(), HAS_LENGTH),
                ("GET /x HTTP/1.1\n\n".to_owned(), 0),
            ];
            assert_eq!(handed_on(&[sent]).await, expected);
            // Wherever the input is cut.
            for cut in 1..sent.len() {
                let found = handed_on(&[&sent[..cut], &sent[cut..]]).await;
                let whole: String = found.iter().map(|(text, _)| text.as_str()).collect();
                assert_eq!(whole.as_bytes(), sent);
                assert_eq!(found.last().unwrap(), &expected[3]);
            }
        });
    }

    #[test]
    fn a_length_beside_a_coding_is_seen_in_either_order() {
        run(async {
            for head in [
                "PUT / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n",
            ] {
                let found = handed_on(&[head.as_bytes(), b"0\r\n\r\n"]).await;
                assert_eq!(found[0].1, HAS_LENGTH | HAS_CODING, "{head}");
                assert!(found[0].0.starts_with(head));
            }
            let found = handed_on(&[b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]).await;
            assert_eq!(found[0].1, HAS_CODING);
        });
    }

    #[test]
    fn an_incomplete_header_is_passed_on_to_be_refused() {
        run(async {
            let long = vec![b'x'; 1000];
            let found = handed_on(&[&long]).await;
            assert_eq!(found.iter().map(|(text, _)| text.len()).sum::<usize>(), 1000);
            assert_eq!(handed_on(&[b"GET /"]).await, [("GET /".to_owned(), 0)]);
            assert!(handed_on(&[]).await.is_empty());
        });
    }
}
