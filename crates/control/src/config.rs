//! What a node is started with: plain data, checked before anything is opened.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fondaco_model::PartitionCount;
use fondaco_node::{PasswordDigest, User};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::ControlError;

/// The configuration of a node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where data is.
    pub data_dir: PathBuf,
    /// Where RESP is served; port 0 lets the system choose.
    pub resp_listen: SocketAddr,
    /// Where HTTP is served; port 0 lets the system choose.
    pub http_listen: SocketAddr,
    /// How many event loops serve RESP; 0 is one for each core.
    pub loops: usize,
    /// How many partitions the cluster has. Set when the data directory is made, never changed.
    pub partitions: PartitionCount,
    /// Who may read what over RESP; everybody everything if empty.
    pub users: Vec<UserConfig>,
    /// The token of the control port; none if `None`.
    pub token: Option<String>,
    /// Certificate and key for TLS on both ports; none if `None`.
    pub tls: Option<TlsConfig>,
    /// Serve beyond loopback even without users or token.
    pub allow_insecure: bool,
    /// How much of the disk a push leaves free, in bytes.
    pub disk_reserve_bytes: u64,
}

/// A user of RESP.
#[derive(Debug, Clone)]
pub struct UserConfig {
    /// The name; `default` is whom `AUTH password` means.
    pub name: String,
    /// The SHA-256 of the password, as 64 hexadecimal digits.
    pub password_sha256: String,
    /// Patterns of the names of the stores that the user may read; `*` is all.
    pub stores: Vec<String>,
    /// Whether the user may see other clients, drop them, and change settings.
    pub admin: bool,
}

/// Files for TLS.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

impl Config {
    /// How much of the disk a push leaves free, in bytes, unless configured.
    pub const DISK_RESERVE_BYTES_DEFAULT: u64 = 256 << 20;

    /// The shortest token, in bytes: shorter ones can be guessed.
    pub const TOKEN_BYTES_MIN: usize = 16;

    /// A node that serves the loopback interface on its usual ports, openly.
    pub fn local(data_dir: impl Into<PathBuf>, partitions: PartitionCount) -> Self {
        Self {
            data_dir: data_dir.into(),
            resp_listen: ([127, 0, 0, 1], 6500).into(),
            http_listen: ([127, 0, 0, 1], 6580).into(),
            loops: 0,
            partitions,
            users: Vec::new(),
            token: None,
            tls: None,
            allow_insecure: false,
            disk_reserve_bytes: Self::DISK_RESERVE_BYTES_DEFAULT,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ControlError> {
        if let Some(token) = &self.token
            && token.len() < Self::TOKEN_BYTES_MIN
        {
            let min = Self::TOKEN_BYTES_MIN;
            let reason = format!(
                "the token has {} bytes: use at least {min}, chosen at random",
                token.len()
            );
            return Err(ControlError::InvalidConfig(reason));
        }
        if self.allow_insecure {
            return Ok(());
        }
        let insecure = |port, addr: SocketAddr, missing| match addr.ip().is_loopback() {
            true => Ok(()),
            false => Err(ControlError::Insecure { port, addr, missing }),
        };
        if self.users.is_empty() {
            insecure("RESP", self.resp_listen, "users")?;
        }
        if self.token.is_none() {
            insecure("HTTP", self.http_listen, "a token")?;
        }
        Ok(())
    }

    pub(crate) fn users(&self) -> Result<Vec<User>, ControlError> {
        let user = |user: &UserConfig| {
            let password: PasswordDigest = user
                .password_sha256
                .parse()
                .map_err(|reason| ControlError::InvalidConfig(format!("user {:?}: {reason}", user.name)))?;
            Ok(User {
                name: user.name.clone(),
                password,
                stores: user.stores.clone(),
                admin: user.admin,
            })
        };
        self.users.iter().map(user).collect()
    }

    pub(crate) fn tls(&self) -> Result<Option<Arc<rustls::ServerConfig>>, ControlError> {
        self.tls.as_ref().map(TlsConfig::load).transpose()
    }
}

impl TlsConfig {
    fn load(&self) -> Result<Arc<rustls::ServerConfig>, ControlError> {
        let invalid = |path: &Path, reason: String| ControlError::InvalidConfig(format!("TLS file {path:?}: {reason}"));
        let certificates = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| invalid(&self.certificate, e.to_string()))?;
        if certificates.is_empty() {
            return Err(invalid(&self.certificate, "it has no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| invalid(&self.key, e.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
            .map_err(|e| invalid(&self.certificate, e.to_string()))?;
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::local("data", PartitionCount::try_from(1).unwrap())
    }

    #[test]
    fn a_port_open_to_the_network_needs_protection_or_an_explicit_word() {
        let mut resp = config();
        resp.resp_listen = ([0, 0, 0, 0], 6500).into();
        let error = resp.check().unwrap_err().to_string();
        assert!(
            error.contains("without users") && error.contains("allow_insecure"),
            "{error}"
        );
        resp.users.push(UserConfig {
            name: "reader".into(),
            password_sha256: "0".repeat(64),
            stores: vec!["*".into()],
            admin: false,
        });
        assert!(resp.check().is_ok());

        let mut http = config();
        http.http_listen = "[::]:6580".parse().unwrap();
        let error = http.check().unwrap_err().to_string();
        assert!(error.contains("without a token"), "{error}");
        http.allow_insecure = true;
        assert!(http.check().is_ok());
        http.token = Some("short".into());
        assert!(http.check().is_err());
    }
}
