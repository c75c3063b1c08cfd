//! A server that receives requests and sends replies, and does nothing else: the minimum for a server on this machine.
//! It has neither records nor an engine.

mod serving;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::children::Child;
use crate::machine::free_address;
use crate::machine::process::Process;
use crate::servers::wait_for_reply;

pub use serving::serve;

const START_LIMIT: Duration = Duration::from_secs(10);

/// A running bare server, in its own process.
pub struct Bare {
    process: Process,
    address: SocketAddr,
}

impl Bare {
    /// Starts one on a core, for keys with this prefix, and values of this size.
    pub fn start(bench: &Bench, cpu: usize, prefix: &str, value_bytes: usize) -> Result<Self> {
        let address = free_address()?;
        let prefix = prefix.to_owned();
        let server = Child::BareServer {
            address,
            prefix,
            value_bytes,
        };
        let launch = server.launch()?.on_cpus(&cpu.to_string());
        let mut process = launch.log_to(bench.log("bare-server")).start()?;
        wait_for_reply(&mut process, address, b"PING\r\n", b"+PONG\r\n", START_LIMIT)?;
        Ok(Self { process, address })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}
