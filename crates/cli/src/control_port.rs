//! The options of every command that asks a cluster: how to reach it.

use std::path::PathBuf;

use clap::Args;

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
    /// How to reach another process of the cluster, at the address of its control port.
    pub fn at(&self, address: &str) -> Self {
        let is_tls = self.http.as_ref().is_some_and(|said| said.starts_with("https://"));
        Self {
            http: Some(match is_tls {
                true => format!("https://{address}"),
                false => address.to_owned(),
            }),
            ..self.clone()
        }
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

impl Tls {
    /// Whether TLS is enabled.
    pub fn is_wanted(&self) -> bool {
        self.tls || self.ca.is_some()
    }
}
