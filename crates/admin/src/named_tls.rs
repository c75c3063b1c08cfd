//! A RESP connection over TLS that trusts the certificates in a file, like the client of the control port.
//!
//! The `redis` crate's verifier refuses a trusted certificate that is both the server's own and that of an authority:
//! see `fondaco_protocol::trusting`.

use std::error::Error;
use std::io::Write;
use std::net::TcpStream;

use fondaco_protocol::trusting;
use redis::{Cmd, ConnectionLike, Parser, RedisResult, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

/// A RESP connection over TLS.
pub(crate) struct NamedTls {
    stream: StreamOwned<ClientConnection, TcpStream>,
    parser: Parser,
}

impl NamedTls {
    /// Connects to `host:port`, and trusts the certificates in this PEM text.
    pub(crate) fn connect(address: &str, pem: &[u8]) -> Result<Self, Box<dyn Error>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| format!("invalid address {address:?}: use host:port"))?;
        let mut tls = ClientConnection::new(trusting(pem)?, name)?;
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        tls.complete_io(&mut socket)?;
        Ok(Self {
            stream: StreamOwned::new(tls, socket),
            parser: Parser::new(),
        })
    }

    /// Authenticates the client.
    pub(crate) fn authenticate(&mut self, user: Option<&str>, password: &str) -> RedisResult<()> {
        let mut command = redis::cmd("AUTH");
        user.into_iter().chain([password]).for_each(|word| {
            command.arg(word);
        });
        command.query(self)
    }
}

impl ConnectionLike for NamedTls {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.stream.write_all(command)?;
        self.stream.flush()?;
        self.parser.parse_value(&mut self.stream)
    }

    fn req_packed_commands(&mut self, commands: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        self.stream.write_all(commands)?;
        self.stream.flush()?;
        for _ in 0..offset {
            self.parser.parse_value(&mut self.stream)?;
        }
        (0..count).map(|_| self.parser.parse_value(&mut self.stream)).collect()
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        Cmd::new().arg("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        !self.stream.conn.is_handshaking()
    }
}
