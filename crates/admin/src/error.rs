//! The reasons that a request to a cluster fails.

use std::io;
use std::path::PathBuf;

use fondaco_protocol::TrustError;

/// A request to a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The process refused the request.
    #[error("{message}")]
    Refused {
        /// The code of the refusal, for programs.
        code: String,
        /// The reason and the remedy, for people.
        message: String,
    },

    /// No process answers at the control port.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// The URL of the control port.
        address: String,
        /// The reason and the remedy.
        reason: String,
    },

    /// No connection to the RESP port can be made.
    #[error("cannot connect to {address}: {reason}")]
    NotConnected {
        /// The RESP port.
        address: String,
        /// The reason and the remedy.
        reason: String,
    },

    /// The process at a control port is not of fondaco.
    #[error("{address} answered {status}, but not as fondaco does: check --http")]
    NotFondaco {
        /// The URL of the control port.
        address: String,
        /// The HTTP status.
        status: String,
    },

    /// The answer broke off, or is longer than any answer.
    #[error("{address} gave an answer that this release does not understand; check its version")]
    Broken {
        /// The URL of the control port.
        address: String,
        /// The reason.
        #[source]
        source: ureq::Error,
    },

    /// The answer cannot be parsed.
    #[error("{address} gave an answer that this release does not understand; check its version")]
    NotParsed {
        /// The URL of the control port.
        address: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The body of a request cannot be written as JSON.
    #[error("cannot write the request as JSON")]
    NotJson(#[source] serde_json::Error),

    /// An address is invalid.
    #[error("invalid address {address:?}: {remedy}")]
    InvalidAddress {
        /// The address.
        address: String,
        /// The valid forms.
        remedy: &'static str,
    },

    /// The address or the token cannot be in a request.
    #[error("{address:?} is not an address, or the token has invalid characters")]
    InvalidRequest {
        /// The URL of the control port.
        address: String,
        /// The reason.
        #[source]
        source: ureq::http::Error,
    },

    /// The file with certificates cannot be read.
    #[error("cannot read the certificates in {path:?}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },

    /// The certificates in a file cannot be trusted.
    #[error("cannot trust the certificates in {path:?}")]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: TrustError,
    },

    /// The process has no RESP port.
    #[error("the process at {address} does not serve RESP: name a node or a router with --http or --resp")]
    NoResp {
        /// The URL of its control port.
        address: String,
    },

    /// The process at a RESP port did not give the address of its control port.
    #[error("{address} does not tell its control port: give it with --http")]
    NoControlPort {
        /// The RESP port.
        address: String,
    },

    /// The process refused a command at its RESP port.
    #[error("{message}")]
    Command {
        /// The reply, which begins with its code.
        message: String,
    },
}

impl AdminError {
    /// The code of the error, for programs: that of the process which refused, `unreachable`, or `failed`.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::Unreachable { .. } => "unreachable",
            _ => "failed",
        }
    }

    /// Whether the data center may be down: no process answers, its answer broke off, or it has lost its coordination service.
    pub fn is_away(&self) -> bool {
        ["unreachable", "unavailable"].contains(&self.code()) || matches!(self, Self::Broken { .. })
    }
}
