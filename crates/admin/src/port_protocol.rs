//! Detects the protocol of a port that did not answer as expected, so that the error can name it.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The timeout of the detection.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// The Redis protocol.
    Resp,
    /// HTTP.
    Http,
    /// TLS; the protocol inside is unknown.
    Tls,
}

/// Detects the protocol at `host:port`; `None` if it cannot be reached, or the protocol is unknown.
pub(crate) fn spoken_at(address: &str) -> Option<Spoken> {
    let mut addresses = address.to_socket_addrs().ok()?;
    let mut stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, TIME_MAX).ok())?;
    stream.set_read_timeout(Some(TIME_MAX)).ok()?;
    stream.set_write_timeout(Some(TIME_MAX)).ok()?;
    // RESP answers this, HTTP refuses it with an HTTP error, and TLS with an alert.
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
        // A TLS alert, of any version.
        [0x15, 0x03, ..] => Some(Spoken::Tls),
        b"HTTP/" => Some(Spoken::Http),
        _ => None,
    }
}

impl Spoken {
    /// The advice to print, if HTTP was tried at this address.
    pub(crate) fn instead_of_http(self, address: &str, tls: bool) -> Option<String> {
        match self {
            Self::Resp => Some(format!(
                "that port speaks RESP: use --resp {address}, or name the control port with --http"
            )),
            Self::Http if tls => Some("that port does not use TLS: omit --tls and --ca".to_owned()),
            Self::Tls if !tls => Some("that port speaks TLS: use --tls, or --ca FILE with its certificate".to_owned()),
            Self::Http | Self::Tls => None,
        }
    }

    /// The advice to print, if RESP was tried at this address.
    pub(crate) fn instead_of_resp(self, address: &str, tls: bool) -> Option<String> {
        match self {
            Self::Http => Some(format!(
                "that port speaks HTTP: use --http {address}, or name the RESP port with --resp"
            )),
            Self::Resp if tls => Some("that port does not use TLS: omit --tls and --ca".to_owned()),
            Self::Tls if !tls => Some("that port speaks TLS: use --tls, or --ca FILE with its certificate".to_owned()),
            Self::Resp | Self::Tls => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_first_bytes_reveal_the_protocol() {
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
