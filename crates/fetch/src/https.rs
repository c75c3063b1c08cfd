//! HTTP agents that trust the certificates of a TLS configuration, like connections over RESP.
//!
//! `ureq` makes its own configurations, and its verifier refuses certificates that were named explicitly; see
//! `fondaco_client::trusting`.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, TcpConnector, Transport, TransportAdapter,
};
use ureq::{Agent, Error};

/// An agent that uses TLS according to `tls`. It uses no proxy.
pub fn agent_trusting(config: Config, tls: Arc<ClientConfig>) -> Agent {
    let connector = ().chain(TcpConnector::default()).chain(TlsConnector { tls });
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct TlsConnector {
    tls: Arc<ClientConfig>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else {
            return Err(Error::ConnectionFailed);
        };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details
            .uri
            .host()
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let name = ServerName::try_from(host).map_err(|_| Error::Tls("the host is not a valid certificate name"))?;
        let mut connection = ClientConnection::new(Arc::clone(&self.tls), name)?;
        let mut socket = TransportAdapter::new(Box::new(transport) as Box<dyn Transport>, details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport {
            buffers: LazyBuffers::new(input, output),
            stream: StreamOwned::new(connection, socket),
        })))
    }
}

/// A connection over TLS.
struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl std::fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let count = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
