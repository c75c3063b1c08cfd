//! A server that receives requests and sends replies, and does nothing else: the minimum for a server on this machine.
//! It has neither records nor an engine.
//!
//! It recognises the load generator's requests by their lengths, and answers every key with the same value, with the
//! key at its beginning, which is the part that is checked. One `send` answers all requests of one `recv`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::dataset::{KEY_BYTES, append_value};
use crate::load::key_head;

const INPUT_BYTES: usize = 128 * 1024;
/// Longer replies are sent before more are generated.
const OUTPUT_BYTES: usize = 256 * 1024;
const EVENTS: usize = 256;
/// The id of the listener, beside the numbers of connections.
const LISTENER: u64 = u64::MAX;
/// How long a client may leave replies unread.
const UNREAD_MAX: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
const GET_HEAD: &[u8] = b"*2\r\n$3\r\nGET\r\n";
const SET_HEAD: &[u8] = b"*3\r\n$3\r\nSET\r\n";
const MGET: &[u8] = b"\r\n$4\r\nMGET\r\n";
const PING: &[u8] = b"PING\r\n";

/// Serves until it is killed.
///
/// # Errors
/// A port that is in use, or requests that the load generator does not send.
pub fn serve(address: SocketAddr, prefix: &str, value_bytes: usize) -> Result<()> {
    let replies = Replies::new(prefix, value_bytes)?;
    let listener = TcpListener::bind(address).with_context(|| format!("could not listen on {address}"))?;
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |of: &dyn AsFd, number| epoll::add(&events, of.as_fd(), number, epoll::EventFlags::IN);
    watch(&listener, epoll::EventData::new_u64(LISTENER))?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut ready = Vec::with_capacity(EVENTS);
    let mut input = vec![0; INPUT_BYTES];
    let mut output = Vec::new();
    loop {
        ready.clear();
        epoll::wait(&events, rustix::buffer::spare_capacity(&mut ready), None)?;
        for event in &ready {
            let number = event.data.u64();
            if number == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                watch(&stream, epoll::EventData::new_u64(connections.len() as u64))?;
                connections.push(Some(Connection {
                    stream,
                    rest: Vec::new(),
                }));
            } else if let Some(place) = connections.get_mut(number as usize)
                && let Some(connection) = place
                && !connection.answer(&replies, &mut input, &mut output)?
            {
                *place = None;
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// An incomplete request.
    rest: Vec<u8>,
}

impl Connection {
    /// Reads once, and answers; returns whether the client is still connected.
    fn answer(&mut self, replies: &Replies, input: &mut [u8], output: &mut Vec<u8>) -> Result<bool> {
        let begun = self.rest.len();
        input[..begun].copy_from_slice(&self.rest);
        let filled = match self.stream.read(&mut input[begun..]) {
            Ok(0) => return Ok(false),
            Ok(count) => begun + count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(true),
            // The client is gone.
            Err(_) => return Ok(false),
        };
        let mut requests = &input[..filled];
        while let Some(bytes) = replies.reply(requests, output)? {
            requests = &requests[bytes..];
            if output.len() > OUTPUT_BYTES && !self.send(output)? {
                return Ok(false);
            }
        }
        self.rest.clear();
        self.rest.extend_from_slice(requests);
        self.send(output)
    }

    /// Sends all of it; returns whether the client is still connected.
    fn send(&mut self, output: &mut Vec<u8>) -> Result<bool> {
        let mut sent = 0;
        while sent < output.len() {
            match self.stream.write(&output[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_ready = poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], Some(&UNREAD_MAX))?;
                    ensure!(is_ready > 0, "a client does not read its replies");
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
        output.clear();
        Ok(true)
    }
}

/// The formats of requests and replies.
struct Replies {
    /// The length of a key on the wire, and the offset of its digits.
    key_bytes: usize,
    digits_at: usize,
    set_bytes: usize,
    /// The reply to a `GET`, and the offset of the key's digits in it.
    value: Vec<u8>,
    value_at: usize,
}

impl Replies {
    fn new(prefix: &str, value_bytes: usize) -> Result<Self> {
        let digits_at = key_head(prefix).len();
        let key_bytes = digits_at + KEY_BYTES + 2;
        let mut value = format!("${value_bytes}\r\n").into_bytes();
        let value_at = value.len();
        append_value(0, value_bytes, &mut value);
        value.extend_from_slice(b"\r\n");
        let set_bytes = SET_HEAD.len() + key_bytes + value.len();
        ensure!(
            value_bytes >= KEY_BYTES && set_bytes < INPUT_BYTES,
            "values of {value_bytes} bytes are not used by the benchmark"
        );
        Ok(Self {
            key_bytes,
            digits_at,
            set_bytes,
            value,
            value_at,
        })
    }

    /// Appends the reply to the first request, if that is complete; returns the request's length.
    fn reply(&self, requests: &[u8], output: &mut Vec<u8>) -> Result<Option<usize>> {
        let request = |bytes: usize| requests.get(..bytes);
        if requests.starts_with(GET_HEAD) {
            let bytes = GET_HEAD.len() + self.key_bytes;
            return Ok(request(bytes).map(|request| {
                self.append_value(&request[GET_HEAD.len()..], output);
                bytes
            }));
        }
        if requests.starts_with(SET_HEAD) {
            return Ok(request(self.set_bytes).map(|request| {
                output.extend_from_slice(b"+OK\r\n");
                request.len()
            }));
        }
        if requests == PING {
            output.extend_from_slice(b"+PONG\r\n");
            return Ok(Some(PING.len()));
        }
        // Incomplete, or with several keys.
        let strange = || {
            format!(
                "no request of the load generator begins with {:?}",
                String::from_utf8_lossy(requests)
            )
        };
        ensure!(requests.is_empty() || requests[0] == b'*', strange());
        let Some(digits) = requests.iter().position(|byte| *byte == b'\r') else {
            return Ok(None);
        };
        let keys_at = digits + MGET.len();
        let Some(head) = request(keys_at) else { return Ok(None) };
        ensure!(&head[digits..] == MGET, strange());
        let count = std::str::from_utf8(&head[1..digits])?;
        let count = count.parse::<usize>()?.saturating_sub(1);
        let bytes = keys_at + count * self.key_bytes;
        ensure!(bytes < INPUT_BYTES, "a request for {count} keys");
        Ok(request(bytes).map(|request| {
            // Writing to a Vec cannot fail.
            let _ = write!(output, "*{count}\r\n");
            let keys = request[keys_at..].chunks(self.key_bytes);
            keys.for_each(|key| self.append_value(key, output));
            bytes
        }))
    }

    /// Appends the value of a key, which begins with the key as on the wire.
    fn append_value(&self, key: &[u8], output: &mut Vec<u8>) {
        let at = output.len() + self.value_at;
        output.extend_from_slice(&self.value);
        output[at..at + KEY_BYTES].copy_from_slice(&key[self.digits_at..self.digits_at + KEY_BYTES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_requests_are_answered() {
        const VALUE_BYTES: usize = 20;
        let replies = Replies::new("records:", VALUE_BYTES).unwrap();
        let key = "$20\r\nrecords:000000000042\r\n";
        let other = "$20\r\nrecords:000000000007\r\n";
        let requests = [
            (format!("*2\r\n$3\r\nGET\r\n{key}"), vec![42]),
            (
                format!("*3\r\n$3\r\nSET\r\n{key}$20\r\n000000000042abcdefgh\r\n"),
                vec![],
            ),
            (format!("*3\r\n$4\r\nMGET\r\n{other}{key}"), vec![7, 42]),
        ];
        for (request, asked) in requests {
            for length in 0..request.len() {
                let mut output = Vec::new();
                let reply = replies.reply(&request.as_bytes()[..length], &mut output);
                assert_eq!((reply.unwrap(), output.len()), (None, 0), "{request:?} {length}");
            }
            let mut output = Vec::new();
            let followed = format!("{request}*2");
            let reply = replies.reply(followed.as_bytes(), &mut output).unwrap();
            assert_eq!(reply, Some(request.len()));
            let output = String::from_utf8(output).unwrap();
            match &asked[..] {
                [] => assert_eq!(output, "+OK\r\n"),
                asked => {
                    let values = asked.iter().map(|id| format!("$20\r\n{id:012}"));
                    assert!(values.clone().all(|value| output.contains(&value)), "{output}");
                    assert_eq!(output.starts_with('*'), asked.len() > 1);
                    assert!(output.ends_with("\r\n"));
                }
            }
        }
        for strange in ["*1\r\n$4\r\nQUIT\r\n*1\r\n", "HELLO 3 SETNAME it\r\n"] {
            assert!(replies.reply(strange.as_bytes(), &mut Vec::new()).is_err(), "{strange}");
        }
    }
}
