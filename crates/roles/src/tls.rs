//! TLS from a configuration: the certificate of a process, and the authorities that it trusts.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fondaco_catalog::PeerAccess;
use fondaco_client::trusting;
use fondaco_coordination::ZooKeeperTls;
use fondaco_fetch::PeerClient;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Config, TlsConfig, ZooKeeperConfig};
use crate::error::RoleError;

impl Config {
    /// The TLS of both ports, if they have any.
    pub(crate) fn tls(&self) -> Result<Option<Arc<rustls::ServerConfig>>, RoleError> {
        self.tls.as_ref().map(TlsConfig::load).transpose()
    }

    /// How other nodes are reached for keys.
    pub(crate) fn peer_access(&self) -> Result<PeerAccess, RoleError> {
        let tls = self.peer_certificates()?.map(|(path, pem)| {
            let invalid = |error| RoleError::InvalidConfig(format!("TLS file {path:?}: {error}"));
            trusting(&pem).map_err(invalid)
        });
        Ok(PeerAccess {
            user: self.peers.user.clone(),
            password: self.peers.password.clone(),
            tls: tls.transpose()?,
            zone: Some(self.member.zone.clone()),
        })
    }

    /// How other nodes are reached for files.
    pub(crate) fn peer_client(&self) -> Result<PeerClient, RoleError> {
        let certificates = self.peer_certificates()?;
        let pem = certificates.as_ref().map(|(_, pem)| pem.as_slice());
        Ok(PeerClient::new(self.token.as_deref(), pem)?)
    }

    /// The certificates to trust other nodes by: if this node uses TLS, all do.
    fn peer_certificates(&self) -> Result<Option<(&Path, Vec<u8>)>, RoleError> {
        let own = self.tls.as_ref().map(|tls| tls.certificate.as_path());
        let Some(path) = self.peers.certificates.as_deref().or(own) else {
            return Ok(None);
        };
        let pem = std::fs::read(path).map_err(RoleError::io("read", path))?;
        Ok(Some((path, pem)))
    }
}

impl ZooKeeperConfig {
    /// How ZooKeeper is reached by TLS, if it is.
    pub(crate) fn tls(&self) -> Result<Option<ZooKeeperTls>, RoleError> {
        let read = |path: &Path| fs::read_to_string(path).map_err(RoleError::io("read", path));
        let Some(ca) = self.ca.as_deref() else {
            return Ok(None);
        };
        let identity = match &self.identity {
            Some(own) => Some((read(&own.certificate)?, read(&own.key)?)),
            None => None,
        };
        Ok(Some(ZooKeeperTls {
            authorities: read(ca)?,
            identity,
        }))
    }
}

impl TlsConfig {
    fn load(&self) -> Result<Arc<rustls::ServerConfig>, RoleError> {
        let invalid = |path: &Path, reason: String| RoleError::InvalidConfig(format!("TLS file {path:?}: {reason}"));
        let certificates = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| invalid(&self.certificate, e.to_string()))?;
        if certificates.is_empty() {
            return Err(invalid(&self.certificate, "it has no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| invalid(&self.key, e.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
            .map_err(|e| invalid(&self.certificate, e.to_string()))?;
        // A returning client is recognised by a ticket, however many others connected in between: rustls itself
        // remembers only the last 256 sessions. The keys of tickets live in this process, and change.
        config.ticketer =
            rustls::crypto::ring::Ticketer::new().map_err(|e| invalid(&self.certificate, e.to_string()))?;
        Ok(Arc::new(config))
    }
}
