//! One connection of the load generator: its output, its requests in flight, and its input.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::keys::Keys;
use super::reply::{Head, parse_head};
use crate::dataset::{KEY_BYTES, append_value, is_value_of, key};

const READ_BYTES: usize = 256 * 1024;
/// A marker in the list of requested records for a write.
const WRITTEN: u64 = u64::MAX;

/// A complete answer.
struct Whole {
    bytes: usize,
    error: Option<String>,
}

/// The bytes on the wire before the digits of each key with this prefix.
pub fn key_head(prefix: &str) -> Vec<u8> {
    format!("${}\r\n{prefix}", prefix.len() + KEY_BYTES).into_bytes()
}

/// Appends a `SET` of a record; `key_head` is [`key_head`] of the prefix.
#[inline]
pub fn append_set(out: &mut Vec<u8>, key_head: &[u8], value_bytes: usize, id: u64) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
    out.extend_from_slice(key_head);
    out.extend_from_slice(&key(id));
    // Writing to a Vec cannot fail.
    let _ = write!(out, "\r\n${value_bytes}\r\n");
    append_value(id, value_bytes, out);
    out.extend_from_slice(b"\r\n");
}

/// A non-blocking connection.
pub struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    sent: usize,
    /// The received bytes: `input[parsed..filled]` is not parsed yet.
    input: Vec<u8>,
    parsed: usize,
    filled: usize,
    /// The due times of the requests in flight.
    due: VecDeque<Instant>,
    /// The records of the requests in flight.
    asked: VecDeque<u64>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            output: Vec::new(),
            sent: 0,
            input: vec![0; READ_BYTES],
            parsed: 0,
            filled: 0,
            due: VecDeque::new(),
            asked: VecDeque::new(),
        })
    }

    /// The number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.due.len()
    }

    /// The due times of the requests in flight.
    pub fn unanswered(&self) -> impl Iterator<Item = Instant> {
        self.due.iter().copied()
    }

    /// Adds a request to the buffer; `key_head` is [`key_head`] of the prefix.
    #[inline]
    pub fn request(&mut self, key_head: &[u8], keys_per_request: usize, keys: &mut Keys, due: Instant) {
        if keys_per_request == 1 {
            self.output.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
        } else {
            // Writing to a Vec cannot fail.
            let _ = write!(self.output, "*{}\r\n$4\r\nMGET\r\n", keys_per_request + 1);
        }
        for _ in 0..keys_per_request {
            let id = keys.next();
            self.output.extend_from_slice(key_head);
            self.output.extend_from_slice(&key(id));
            self.output.extend_from_slice(b"\r\n");
            self.asked.push_back(id);
        }
        self.due.push_back(due);
    }

    /// Adds a `SET` of a record to the buffer; `key_head` is [`key_head`] of the prefix.
    #[inline]
    pub fn write(&mut self, key_head: &[u8], value_bytes: usize, id: u64, due: Instant) {
        append_set(&mut self.output, key_head, value_bytes, id);
        self.asked.push_back(WRITTEN);
        self.due.push_back(due);
    }

    /// Sends as much as possible; returns whether something is left.
    pub fn flush(&mut self) -> Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("could not send a request"),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(false)
    }

    /// Reads once, and reports each answered request: its due time, the time of the answer, and the error, if it or one
    /// of its keys failed.
    pub fn receive(
        &mut self,
        prefix: &str,
        keys_per_request: usize,
        mut answered: impl FnMut(Instant, Instant, Option<String>) -> Result<()>,
    ) -> Result<()> {
        if self.filled == self.input.len() {
            if self.parsed > 0 {
                self.input.copy_within(self.parsed..self.filled, 0);
                self.filled -= self.parsed;
                self.parsed = 0;
            } else {
                self.input.resize(self.input.len() * 2, 0);
            }
        }
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => bail!("the server has closed the connection"),
            Ok(bytes) => self.filled += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(error) => return Err(error).context("could not read an answer"),
        }
        let now = Instant::now();
        while let Some(whole) = self.whole_answer(prefix, keys_per_request)? {
            self.parsed += whole.bytes;
            self.asked.drain(..keys_per_request);
            let due = self.due.pop_front().context("an answer without a request")?;
            answered(due, now, whole.error)?;
        }
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        }
        Ok(())
    }

    /// The length of the first answer, if it is complete; checks its values.
    fn whole_answer(&self, prefix: &str, keys_per_request: usize) -> Result<Option<Whole>> {
        let input = &self.input[self.parsed..self.filled];
        let mut at = 0;
        let mut error = None;
        if self.asked.front() == Some(&WRITTEN) {
            return match parse_head(input)? {
                None => Ok(None),
                Some((Head::Ok, bytes)) => Ok(Some(Whole { bytes, error: None })),
                Some((Head::Error(text), bytes)) => {
                    let error = Some(text);
                    Ok(Some(Whole { bytes, error }))
                }
                Some((other, _)) => bail!("SET is answered by {other:?}"),
            };
        }
        if keys_per_request > 1 {
            match parse_head(input)? {
                None => return Ok(None),
                Some((Head::Array(count), bytes)) if count == keys_per_request => at = bytes,
                Some((Head::Error(text), bytes)) => {
                    let error = Some(text);
                    return Ok(Some(Whole { bytes, error }));
                }
                Some((other, _)) => bail!("MGET of {keys_per_request} keys is answered by {other:?}"),
            }
        }
        for number in 0..keys_per_request {
            let Some((head, bytes)) = parse_head(&input[at..])? else {
                return Ok(None);
            };
            let value_bytes = match head {
                Head::Bulk(value_bytes) => value_bytes,
                Head::Error(text) => {
                    at += bytes;
                    error = Some(text);
                    continue;
                }
                head => bail!("a key that exists is answered by {head:?}"),
            };
            let value = at + bytes..at + bytes + value_bytes;
            at = value.end + 2;
            if at > input.len() {
                return Ok(None);
            }
            let id = *self.asked.get(number).context("an answer without a request")?;
            ensure!(
                is_value_of(id, &input[value]),
                "the value of {prefix}{} is wrong",
                String::from_utf8_lossy(&key(id))
            );
        }
        Ok(Some(Whole { bytes: at, error }))
    }
}
