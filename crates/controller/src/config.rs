//! The configuration of machines on demand.

use std::fmt;
use std::time::Duration;

use fondaco_decisions::balance::MachineSettings;

/// How machines are requested, enlarged and returned.
#[derive(Debug, Clone)]
pub struct MachinesConfig {
    /// The program or address that is called.
    pub hook: Hook,
    /// How long a call may take.
    pub timeout: Duration,
    /// When it is called.
    pub settings: MachineSettings,
}

/// A hook outside of fondaco. It gets a JSON object, and answers one.
#[derive(Clone)]
pub enum Hook {
    /// A program with arguments: standard input has the object, standard output the answer.
    Command(Vec<String>),
    /// An address: the object is posted to it.
    Url(String),
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and addresses may have secrets.
        f.write_str(match self {
            Self::Command(_) => "Command(..)",
            Self::Url(_) => "Url(..)",
        })
    }
}

impl MachinesConfig {
    /// How long a call may take, unless configured.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

    /// How long after a request the next one waits, unless configured.
    pub const COOL_DOWN_DEFAULT: Duration = Duration::from_secs(600);

    /// How long a cluster must be calm before a node is returned, unless configured.
    pub const CALM_DEFAULT: Duration = Duration::from_secs(1800);
}
