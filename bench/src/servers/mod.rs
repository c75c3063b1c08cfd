//! The compared servers: started on chosen cores, filled, and measured over the network.

pub mod bare;
pub mod control;
pub mod direct;
pub mod fondaco;
pub mod mariadb;
pub mod redis;
pub mod replicas;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fondaco_testing::Kafka;

use crate::bench::Bench;
use crate::child::Child;
use crate::dataset::{Dataset, key};
use crate::machine::free_address;
use crate::machine::process::Process;
use direct::Direct;
use fondaco::{Fondaco, START_WAIT};
use mariadb::MariaDb;
use redis::Redis;

const POLL: Duration = Duration::from_millis(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A running server of any kind.
pub enum Server {
    Fondaco(Box<Fondaco>),
    Redis(Redis),
    MariaDb(MariaDb),
    /// A process that only receives requests and sends replies, and its address.
    Bare(Process, SocketAddr),
    Kafka(Kafka),
    /// An engine that is called directly.
    Engine(Direct),
    /// An HTTP server in this process.
    Collector,
}

impl Server {
    /// Starts a bare server on the servers' core, for keys with this prefix, and values of this size.
    pub fn start_bare(bench: &Bench, prefix: &str, value_bytes: usize) -> Result<Self> {
        let address = free_address()?;
        let prefix = prefix.to_owned();
        let server = Child::BareServer {
            address,
            prefix,
            value_bytes,
        };
        let launch = server.launch()?.on_cpu(bench.server_cpu());
        let mut process = launch.log_to(bench.log("bare-server")).start()?;
        wait_for_reply(&mut process, address, b"PING\r\n", b"+PONG\r\n", REQUEST_LIMIT)?;
        Ok(Self::Bare(process, address))
    }

    /// Where it gets requests of the Redis protocol.
    pub fn resp(&self) -> Result<SocketAddr> {
        match self {
            Self::Fondaco(fondaco) => Ok(fondaco.front().resp()),
            Self::Redis(redis) => Ok(redis.address()),
            Self::Bare(_, address) => Ok(*address),
            _ => bail!("a server without the Redis protocol"),
        }
    }

    /// The process that gets requests.
    pub fn process(&self) -> Result<&Process> {
        match self {
            Self::Fondaco(fondaco) => Ok(fondaco.front().process()),
            Self::Redis(redis) => Ok(redis.process()),
            Self::Bare(process, _) => Ok(process),
            _ => bail!("a server without a process of its own"),
        }
    }

    /// Its CPU time so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        match self {
            Self::Fondaco(fondaco) => Ok(fondaco.cpu_time_of_nodes()? + fondaco.cpu_time_of_router()?),
            Self::MariaDb(mariadb) => mariadb.cpu_time(),
            Self::Redis(redis) => redis.cpu_time(),
            other => other.process()?.cpu_time(),
        }
    }

    /// Ends it and deletes its data.
    pub fn end(self) -> Result<()> {
        match self {
            Self::Fondaco(fondaco) => fondaco.end(),
            Self::MariaDb(mariadb) => mariadb.end(),
            Self::Engine(engine) => engine.end(),
            _ => Ok(()),
        }
    }
}

/// The time limit and polling interval of a wait.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    pub limit: Duration,
    pub poll: Duration,
}

impl Wait {
    /// Polls until a condition holds.
    pub fn until(self, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let Self { limit, poll } = self;
        let deadline = Instant::now() + limit;
        while !is_so()? {
            ensure!(Instant::now() < deadline, "not within {limit:?}: {what}");
            std::thread::sleep(poll);
        }
        Ok(())
    }
}

/// Polls until a condition holds, for a minute at most.
pub fn wait_until(what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    START_WAIT.until(what, is_so)
}

/// Waits until a server answers a RESP request with these first bytes.
pub fn wait_for_reply(
    process: &mut Process,
    address: SocketAddr,
    request: &[u8],
    reply: &[u8],
    limit: Duration,
) -> Result<()> {
    let mut last = None;
    let wait = Wait { limit, poll: POLL };
    let what = format!("{:?} from {address}", String::from_utf8_lossy(reply));
    let waited = wait.until(&what, || {
        if let Some(status) = process.ended()? {
            bail!("the server at {address} ended with {status}{}", process.last_words());
        }
        let answer = ask(address, request, reply.len());
        let is_so = matches!(&answer, Ok(answer) if answer == reply);
        last = Some(answer);
        Ok(is_so)
    });
    waited.with_context(|| format!("the last answer is {last:?}"))
}

/// A `GET` of the last record of a dataset, and the beginning of its answer.
pub fn last_record_exchange(store: &str, dataset: Dataset) -> (Vec<u8>, Vec<u8>) {
    let key = key(dataset.records - 1);
    let key = String::from_utf8_lossy(&key);
    let request = format!("GET {store}:{key}\r\n").into_bytes();
    let reply = format!("${}\r\n{key}", dataset.value_bytes).into_bytes();
    (request, reply)
}

/// The first bytes of a server's answer to a request.
pub fn ask(address: SocketAddr, request: &[u8], reply_bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    stream.write_all(request)?;
    let mut reply = vec![0; reply_bytes];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}
