//! The compared servers: started on chosen cores, filled, and measured over the network.

pub mod bare;
pub mod cluster;
pub mod control;
pub mod fondaco;
pub mod mariadb;
pub mod redis;
pub mod redis_benchmark;
pub mod replicas;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::dataset::{Dataset, key};
use crate::machine::process::Process;
use crate::peers::fondaco::STORE;

const POLL: Duration = Duration::from_millis(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Waits until a server answers a RESP request with these first bytes.
pub fn wait_for_reply(
    process: &mut Process,
    address: SocketAddr,
    request: &[u8],
    reply: &[u8],
    limit: Duration,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        let answer = ask(address, request, reply.len());
        if matches!(&answer, Ok(answer) if answer == reply) {
            return Ok(());
        }
        if let Some(status) = process.ended()? {
            bail!("the server at {address} ended with {status}{}", process.last_words());
        }
        if Instant::now() > deadline {
            bail!(
                "no {:?} from {address} within {limit:?}, last: {answer:?}",
                String::from_utf8_lossy(reply)
            );
        }
        thread::sleep(POLL);
    }
}

/// A `GET` of the last record of a dataset, and the beginning of its answer.
pub fn last_record_exchange(dataset: Dataset) -> (Vec<u8>, Vec<u8>) {
    let key = key(dataset.records - 1);
    let key = String::from_utf8_lossy(&key);
    let request = format!("GET {STORE}:{key}\r\n").into_bytes();
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
