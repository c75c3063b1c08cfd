//! TLS to ZooKeeper: what is trusted, what this process shows, and why a connection by TLS fails.
//!
//! The client library makes the connections, and says only that no server can be reached. So a failed attempt is made
//! again here, as far as the end of the handshake, to find the reason.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zookeeper_client::TlsOptions;

use crate::error::CoordinationError;

/// How long the search for the reason of a failure may take.
pub(super) const PROBE_MAX: Duration = Duration::from_secs(5);

/// How long a server that refuses the certificate of this process may take to say so.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

/// The port of a server that is named without one.
const PORT_DEFAULT: u16 = 2181;

/// How ZooKeeper is reached by TLS. Its servers must have certificates for the names or addresses that they are
/// configured by.
#[derive(Clone)]
pub struct ZooKeeperTls {
    /// The certificates to trust servers by, PEM.
    pub authorities: String,
    /// The certificate chain that this process shows, and its private key, both PEM; for servers that ask for one.
    pub identity: Option<(String, String)>,
}

impl fmt::Debug for ZooKeeperTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the private key.
        f.debug_struct("ZooKeeperTls").finish_non_exhaustive()
    }
}

/// Settings that were checked.
pub(super) struct Tls {
    pub(super) options: TlsOptions,
    probe: Arc<ClientConfig>,
}

impl Tls {
    /// # Errors
    /// The files cannot be used, or a server has a name that no certificate can be for.
    pub(super) fn new(settings: &ZooKeeperTls, servers: &str) -> Result<Self, CoordinationError> {
        let invalid = |reason: String| CoordinationError::InvalidTls { reason };
        if let Some(server) = servers.split(',').find(|server| name(server).is_none()) {
            return Err(invalid(format!(
                "{server:?} is neither a host name nor an IPv4 address, and no certificate can be for it"
            )));
        }
        let unusable = |what: &'static str| {
            move |error: String| CoordinationError::InvalidTls {
                reason: format!("{what}: {error}"),
            }
        };
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(settings.authorities.as_bytes()) {
            let authority = authority.map_err(|error| unusable("ca")(error.to_string()))?;
            roots
                .add(authority)
                .map_err(|error| unusable("ca")(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("ca")("it has no certificate".to_owned()));
        }
        // The client library takes the provider of the process. Another one that was installed before is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(error.to_string()))?
            .with_root_certificates(roots);
        let options = TlsOptions::new().with_pem_ca(&settings.authorities);
        let mut options = options.map_err(|error| unusable("ca")(error.to_string()))?;
        let probe = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
                let chain = chain.map_err(|error| unusable("certificate")(error.to_string()))?;
                let private = PrivateKeyDer::from_pem_slice(key.as_bytes());
                let private = private.map_err(|error| unusable("key")(error.to_string()))?;
                options = options
                    .with_pem_identity(certificate, key)
                    .map_err(|error| unusable("certificate")(error.to_string()))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| unusable("certificate and key")(error.to_string()))?
            }
        };
        Ok(Self {
            options,
            probe: Arc::new(probe),
        })
    }

    /// Why no server can be reached by TLS; `None` if a server can be, or if one does not answer at all.
    pub(super) async fn explain(&self, servers: &str) -> Option<String> {
        for server in servers.split(',') {
            let (host, port) = split(server);
            let Some(name) = name(server) else { continue };
            let handshake = async {
                let stream = TcpStream::connect((host, port)).await.ok()?;
                let connector = TlsConnector::from(Arc::clone(&self.probe));
                let mut stream = match connector.connect(name, stream).await {
                    Ok(stream) => stream,
                    Err(error) => return Some(error),
                };
                // In TLS 1.3 a server refuses a client after the client's end of the handshake. It says nothing else
                // before it is asked.
                let refused = stream.read_u8();
                tokio::time::timeout(REFUSED_WITHIN, refused).await.ok()?.err()
            };
            if let Ok(Some(error)) = tokio::time::timeout(PROBE_MAX, handshake).await {
                return Some(format!("{server}: {error}"));
            }
        }
        None
    }
}

fn split(server: &str) -> (&str, u16) {
    match server.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (host, port),
        _ => (server, PORT_DEFAULT),
    }
}

fn name(server: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(split(server).0).ok().map(|name| name.to_owned())
}
