//! Requests over RESP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A connection of a client.
pub struct Resp(BufReader<TcpStream>);

impl Resp {
    pub fn at(address: impl ToSocketAddrs) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a line. Returns the first string of the answer, or its line; empty if the connection is closed.
    pub fn ask(&mut self, command: &str) -> String {
        String::from_utf8(self.bytes(command).unwrap()).unwrap()
    }

    /// The same, as bytes, and with an error if the connection breaks.
    pub fn bytes(&mut self, command: &str) -> io::Result<Vec<u8>> {
        let answer = self.send(&format!("{command}\r\n"))?;
        Ok(answer.into_iter().next().unwrap_or_default())
    }

    /// Sends a request whose arguments may be long. Returns all strings of its answer.
    pub fn ask_long(&mut self, arguments: &[&str]) -> Vec<String> {
        let mut request = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            request += &format!("${}\r\n{argument}\r\n", argument.len());
        }
        let answer = self.send(&request).unwrap().into_iter();
        answer.map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    fn send(&mut self, request: &str) -> io::Result<Vec<Vec<u8>>> {
        // In one piece: the kernel would wait for an answer to the first one before it sends the second.
        self.0.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Ok(Vec::new());
        }
        let line = line.trim_end();
        let number = |kind: char| line.strip_prefix(kind)?.parse::<usize>().ok();
        if let Some(count) = number('*') {
            let answers = (0..count).map(|_| self.answer());
            return Ok(answers.collect::<io::Result<Vec<_>>>()?.concat());
        }
        let Some(length) = number('$') else {
            return Ok(vec![line.into()]);
        };
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(vec![bytes])
    }
}
