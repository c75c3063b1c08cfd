//! Errors of the crates, on their way to Python: a code and a message. `fondaco.errors` has the exception and the remedy for
//! each code.

use fondaco_admin::AdminError;
use fondaco_client::ClientError;
use fondaco_embedded::EmbeddedError;
use fondaco_export::ExportError;
use fondaco_protocol::{InvalidKey, TrustError};
use fondaco_push::with_causes;
use fondaco_typed::DecodeError;
use pyo3::prelude::*;

use crate::runtime::errors_attribute;

/// Why an operation failed.
#[derive(Debug)]
pub enum Fault {
    /// The error of a crate.
    Named {
        /// The code that scripts test.
        code: String,
        /// The reason.
        message: String,
    },
    /// An exception that Python raised meanwhile.
    Python(PyErr),
}

impl Fault {
    /// An error with this code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Named {
            code: code.into(),
            message: message.into(),
        }
    }

    /// An argument that cannot be used.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self::new("BADINPUT", message)
    }
}

/// The code that a message of a server begins with.
fn leading_code(message: &str) -> Option<&str> {
    let word = message.split(' ').next()?;
    (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(word)
}

/// The code of a refusal that a seed answered with, of the reason for which a client has no topology.
fn refusal_of_seed(reason: &str) -> Option<&str> {
    let code = leading_code(reason.split_once(" said: ")?.1)?;
    ["WRONGPASS", "NOAUTH", "NOPERM"].contains(&code).then_some(code)
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        let of_server = match &error {
            ClientError::NoTopology { reason, .. } => refusal_of_seed(reason),
            ClientError::Graph(message) => leading_code(message),
            ClientError::Refused { message, .. } => leading_code(message),
            _ => None,
        };
        Self::new(of_server.unwrap_or_else(|| error.code()), message)
    }
}

impl From<AdminError> for Fault {
    fn from(error: AdminError) -> Self {
        let message = error.to_string();
        let code = match &error {
            AdminError::Command { message } => leading_code(message).unwrap_or("ERR"),
            AdminError::NotConnected { .. } => "unreachable",
            other => other.code(),
        };
        Self::new(code, message)
    }
}

impl From<InvalidKey> for Fault {
    fn from(error: InvalidKey) -> Self {
        Self::from(ClientError::from(error))
    }
}

impl From<TrustError> for Fault {
    fn from(error: TrustError) -> Self {
        Self::bad_input(format!("cannot trust the certificates: {error}"))
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::new("WRONGTYPE", error.to_string())
    }
}

impl From<EmbeddedError> for Fault {
    fn from(error: EmbeddedError) -> Self {
        let message = with_causes(&error);
        let code = match &error {
            EmbeddedError::Admin(error) => error.code(),
            EmbeddedError::NoVersion | EmbeddedError::Behind { .. } => "NOVERSION",
            EmbeddedError::NotAnswered { .. } => "unavailable",
            EmbeddedError::NoStore { .. } => "NOSTORE",
            EmbeddedError::Timeout { .. } => "TIMEOUT",
            EmbeddedError::Graph { .. }
            | EmbeddedError::GraphStore { .. }
            | EmbeddedError::OtherKind { .. }
            | EmbeddedError::LogStream { .. } => "WRONGTYPE",
            EmbeddedError::Locked { .. } => "conflict",
            EmbeddedError::Format(_) => "CORRUPT",
            EmbeddedError::OtherStore { .. } | EmbeddedError::NoEndpoint => "BADINPUT",
            _ => "failed",
        };
        Self::new(code, message)
    }
}

impl From<ExportError> for Fault {
    fn from(error: ExportError) -> Self {
        let code = match &error {
            ExportError::Cancelled => "CANCELLED",
            ExportError::Decode(_) => "WRONGTYPE",
            other => other.code(),
        };
        Self::new(code.to_owned(), with_causes(&error))
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Python(error) => error,
            Fault::Named { code, message } => Python::attach(|py| {
                let made = errors_attribute(py, "of_code").and_then(|make| make.call1((code, message)));
                made.map_or_else(|error| error, PyErr::from_value)
            }),
        }
    }
}
