//! What a port speaks that did not answer as expected: asked once, so that the error can name it.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a port may take to show what it speaks.
const TIME_MAX: Duration = Duration::from_secs(2);

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// The Redis protocol.
    Resp,
    /// HTTP.
    Http,
    /// TLS, and nothing is known of what is within.
    Tls,
}

/// What the port at `host:port` speaks; `None` if it cannot be reached, or says nothing that is known.
pub fn spoken_at(address: &str) -> Option<Spoken> {
    let address = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, TIME_MAX).ok()?;
    stream.set_read_timeout(Some(TIME_MAX)).ok()?;
    stream.set_write_timeout(Some(TIME_MAX)).ok()?;
    // RESP answers it, HTTP refuses it in words of its own, and TLS by an alert.
    stream.write_all(b"PING\r\n\r\n").ok()?;
    let mut start = [0; 5];
    let mut length = 0;
    while length < start.len() {
        match stream.read(&mut start[length..]) {
            Ok(0) | Err(_) => break,
            Ok(read) => length += read,
        }
    }
    match &start[..length] {
        [b'+' | b'-', ..] => Some(Spoken::Resp),
        // An alert of any version of TLS.
        [0x15, 0x03, ..] => Some(Spoken::Tls),
        b"HTTP/" => Some(Spoken::Http),
        _ => None,
    }
}

impl Spoken {
    /// What to say instead, if HTTP was tried at this address.
    pub fn instead_of_http(self, address: &str, tls: bool) -> Option<String> {
        match self {
            Self::Resp => Some(format!(
                "that port speaks RESP: say --resp {address}, or name the control port with --http"
            )),
            Self::Http if tls => Some("that port speaks no TLS: leave out --tls and --ca".to_owned()),
            Self::Tls if !tls => Some("that port speaks TLS: say --tls, or --ca FILE with its certificate".to_owned()),
            Self::Http | Self::Tls => None,
        }
    }

    /// What to say instead, if RESP was tried at this address.
    pub fn instead_of_resp(self, address: &str, tls: bool) -> Option<String> {
        match self {
            Self::Http => Some(format!(
                "that port speaks HTTP: say --http {address}, or name the RESP port with --resp"
            )),
            Self::Resp if tls => Some("that port speaks no TLS: leave out --tls and --ca".to_owned()),
            Self::Tls if !tls => Some("that port speaks TLS: say --tls, or --ca FILE with its certificate".to_owned()),
            Self::Resp | Self::Tls => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_a_port_speaks_is_told_by_its_first_bytes() {
        for (answer, spoken) in [
            (&b"+PONG\r\n"[..], Some(Spoken::Resp)),
            (b"-NOAUTH no", Some(Spoken::Resp)),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", Some(Spoken::Http)),
            (b"\x15\x03\x03\x00\x02\x02\x32", Some(Spoken::Tls)),
            (b"220 smtp", None),
            (b"", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 8];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(answer).unwrap();
            });
            assert_eq!(spoken_at(&address), spoken, "{answer:?}");
            server.join().unwrap();
        }
    }
}
