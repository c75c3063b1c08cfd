//! A client's connection to one of the servers: made at the first request, closed when no answer comes.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use redis::{Cmd, Value};

/// How long a client waits for an answer. Coordinators give up sooner; a server that was stopped does not.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Sends requests to one server until it does not answer, then to another one.
pub struct Connection<'a> {
    addresses: &'a [String],
    open: Option<(String, redis::Connection)>,
}

/// The outcome of a request.
pub enum Outcome {
    /// An answer.
    Answer(Value),
    /// An error or no answer: the request may have been executed.
    Unknown(String),
    /// The request was not sent.
    Unsent(String),
}

impl Outcome {
    /// The answer, if there is one.
    pub fn answer(self) -> Option<Value> {
        match self {
            Self::Answer(value) => Some(value),
            Self::Unknown(_) | Self::Unsent(_) => None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(value) => write!(f, "{value:?}"),
            Self::Unknown(error) => write!(f, "unknown: {error}"),
            Self::Unsent(error) => write!(f, "unsent: {error}"),
        }
    }
}

impl<'a> Connection<'a> {
    /// A connection to any of these addresses.
    pub fn to(addresses: &'a [String]) -> Self {
        Self { addresses, open: None }
    }

    /// Sends a request.
    pub fn ask(&mut self, request: &Cmd, rng: &mut Rng) -> Outcome {
        let (address, connection) = match &mut self.open {
            Some(open) => open,
            None => {
                let address = &self.addresses[rng.usize(..self.addresses.len())];
                match connect(address) {
                    Ok(connection) => self.open.insert((address.clone(), connection)),
                    Err(error) => return Outcome::Unsent(format!("{address}: {error}")),
                }
            }
        };
        let error = match request.query(connection) {
            Ok(value) => return Outcome::Answer(value),
            Err(error) => error,
        };
        let said = format!("{address}: {error}");
        // An error with a code came from the server: the connection is intact.
        if error.code().is_none() {
            self.open = None;
        }
        Outcome::Unknown(said)
    }

    /// Uses a random server for the next request.
    pub fn leave(&mut self) {
        self.open = None;
    }

    /// The server of the last request, if it answered.
    pub fn address(&self) -> &str {
        self.open.as_ref().map_or("no server", |(address, _)| address)
    }
}

fn connect(address: &str) -> redis::RedisResult<redis::Connection> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}
