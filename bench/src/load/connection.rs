//! One connection of the load generator: its output, its requests in flight, and its input.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::Writes;
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
    /// How many of its keys are late.
    late: u64,
}

/// The keys of each request.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// `GET` for one, `MGET` for more.
    pub keys_per_request: usize,
    /// `FONDACO.MGET` with this deadline, and null for keys that are late.
    pub deadline_ms: Option<u64>,
    /// The answer of a `WAIT` follows that of each `SET`.
    pub waits: bool,
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
    pub fn request(&mut self, key_head: &[u8], asked: Asked, keys: &mut Keys, due: Instant) {
        let Asked {
            keys_per_request,
            deadline_ms,
            ..
        } = asked;
        // Writing to a Vec cannot fail.
        let _ = match deadline_ms {
            Some(ms) => {
                let (count, ms) = (keys_per_request + 4, ms.to_string());
                let head = format!("*{count}\r\n$12\r\nFONDACO.MGET\r\n$8\r\nDEADLINE\r\n");
                write!(self.output, "{head}${}\r\n{ms}\r\n$7\r\nPARTIAL\r\n", ms.len())
            }
            None if keys_per_request == 1 => self.output.write_all(b"*2\r\n$3\r\nGET\r\n"),
            None => write!(self.output, "*{}\r\n$4\r\nMGET\r\n", keys_per_request + 1),
        };
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
    pub fn write(&mut self, key_head: &[u8], writes: Writes, id: u64, due: Instant) {
        append_set(&mut self.output, key_head, writes.value_bytes, id);
        if writes.waits {
            self.output
                .extend_from_slice(b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n");
        }
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
    /// of its keys failed; and how many of its keys are late.
    pub fn receive(
        &mut self,
        prefix: &str,
        asked: Asked,
        mut answered: impl FnMut(Instant, Instant, Option<String>, u64) -> Result<()>,
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
        while let Some(whole) = self.whole_answer(prefix, asked)? {
            self.parsed += whole.bytes;
            self.asked.drain(..asked.keys_per_request);
            let due = self.due.pop_front().context("an answer without a request")?;
            answered(due, now, whole.error, whole.late)?;
        }
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        }
        Ok(())
    }

    /// The length of the first answer, if it is complete; checks its values.
    fn whole_answer(&self, prefix: &str, asked: Asked) -> Result<Option<Whole>> {
        let Asked {
            keys_per_request,
            deadline_ms,
            waits,
        } = asked;
        let is_partial = deadline_ms.is_some();
        let input = &self.input[self.parsed..self.filled];
        let mut at = 0;
        let (mut error, mut late) = (None, 0);
        if self.asked.front() == Some(&WRITTEN) {
            return match parse_head(input)? {
                None => Ok(None),
                Some((Head::Ok, bytes)) if waits => match parse_head(&input[bytes..])? {
                    None => Ok(None),
                    Some((Head::Integer(1..), wait_bytes)) => {
                        let bytes = bytes + wait_bytes;
                        Ok(Some(Whole { bytes, error, late }))
                    }
                    Some((other, _)) => bail!("WAIT is answered by {other:?}"),
                },
                Some((Head::Ok, bytes)) => Ok(Some(Whole { bytes, error, late })),
                Some((Head::Error(text), bytes)) => {
                    let error = Some(text);
                    Ok(Some(Whole { bytes, error, late }))
                }
                Some((other, _)) => bail!("SET is answered by {other:?}"),
            };
        }
        if keys_per_request > 1 || is_partial {
            match parse_head(input)? {
                None => return Ok(None),
                Some((Head::Array(count), bytes)) if count == keys_per_request + usize::from(is_partial) => at = bytes,
                Some((Head::Error(text), bytes)) => {
                    let error = Some(text);
                    return Ok(Some(Whole { bytes, error, late }));
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
                Head::Null if is_partial => {
                    at += bytes;
                    late += 1;
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
        if is_partial {
            let Some(bytes) = late_list(&input[at..], late)? else {
                return Ok(None);
            };
            at += bytes;
        }
        Ok(Some(Whole { bytes: at, error, late }))
    }
}

/// The length of the list of late keys at the end of an answer, if it is complete: their reason and places, or null.
///
/// # Errors
/// It does not have this many keys.
fn late_list(input: &[u8], late: u64) -> Result<Option<usize>> {
    let Some((head, mut at)) = parse_head(input)? else {
        return Ok(None);
    };
    let elements = match head {
        Head::Null => 0,
        Head::Array(elements) => elements,
        head => bail!("the list of late keys is {head:?}"),
    };
    ensure!(
        elements as u64 == late + u64::from(late > 0),
        "{elements} elements are about {late} late keys"
    );
    for _ in 0..elements {
        let Some((head, bytes)) = parse_head(input.get(at..).unwrap_or_default())? else {
            return Ok(None);
        };
        at += bytes;
        if let Head::Bulk(reason_bytes) = head {
            at += reason_bytes + 2;
        }
    }
    Ok((at <= input.len()).then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_late_keys_has_a_reason_and_a_place_for_each() {
        let whole = b"*3\r\n$7\r\nTIMEOUT\r\n:4\r\n:17\r\n";
        assert_eq!(late_list(whole, 2).unwrap(), Some(whole.len()));
        for end in 0..whole.len() {
            assert_eq!(late_list(&whole[..end], 2).unwrap(), None, "{end} bytes");
        }
        assert!(late_list(whole, 1).is_err());
        assert_eq!(late_list(b"$-1\r\n+OK\r\n", 0).unwrap(), Some(5));
        assert!(late_list(b"$-1\r\n", 1).is_err());
    }
}
