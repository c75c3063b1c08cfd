//! The options of every command that asks a cluster: how to reach it.

use std::path::PathBuf;

use clap::Args;
use fondaco_admin::{AdminError, Client, Connection, Endpoint};

/// How to reach the cluster: the control port or the RESP port of any process, in any role; each one tells the address
/// of the other port.
#[derive(Debug, Clone, Args)]
pub struct ControlPort {
    /// The control port of any process of the cluster: host:port, or a URL; the default is 127.0.0.1:6580
    #[arg(long, env = "FONDACO_HTTP", value_name = "ADDRESS")]
    pub http: Option<String>,

    /// The RESP port of any process of the cluster: host:port. One of --http and --resp is enough
    #[arg(long, env = "FONDACO_RESP", value_name = "HOST:PORT")]
    pub resp: Option<String>,

    /// The user name at the RESP port
    #[arg(long, env = "FONDACO_USER", requires = "password")]
    pub user: Option<String>,

    /// The password at the RESP port
    #[arg(long, env = "FONDACO_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// The token of the control port
    #[arg(long, env = "FONDACO_TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    #[command(flatten)]
    pub tls: Tls,
}

impl ControlPort {
    /// The options as a value.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            http: self.http.clone(),
            resp: self.resp.clone(),
            user: self.user.clone(),
            password: self.password.clone(),
            token: self.token.clone(),
            tls: self.tls.tls,
            ca: self.tls.ca.clone(),
            ..Endpoint::default()
        }
    }

    /// A client of the control port.
    pub fn client(&self) -> Result<Client, AdminError> {
        self.endpoint().client()
    }

    /// A connection to the RESP port.
    pub fn connect(&self) -> Result<Connection, AdminError> {
        let endpoint = self.endpoint();
        fondaco_admin::connect(&endpoint, &endpoint.resp_address()?)
    }
}

/// TLS options for connections to a node.
#[derive(Debug, Clone, Args)]
pub struct Tls {
    /// Use TLS, and trust the system's certificate authorities
    #[arg(long, env = "FONDACO_TLS")]
    pub tls: bool,

    /// Use TLS, and trust the certificates in this PEM file
    #[arg(long, env = "FONDACO_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
}
