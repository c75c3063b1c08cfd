//! Writing all records of a dataset to a server that speaks RESP, as fast as it takes them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

use super::connection::{append_set, key_head};
use crate::dataset::Dataset;

/// How many records are under way at a time.
const UNDER_WAY: u64 = 512;
const OK: &[u8] = b"+OK\r\n";

/// Writes the records of a dataset, each under its key with this prefix, and checks each answer.
///
/// # Errors
/// A connection that fails, and any answer but `OK`.
pub fn fill(address: SocketAddr, prefix: &str, dataset: Dataset) -> Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("could not connect to {address}"))?;
    stream.set_nodelay(true)?;
    let head = key_head(prefix);
    let mut requests = Vec::new();
    let mut answers = vec![0; UNDER_WAY as usize * OK.len()];
    let mut next = 0;
    while next < dataset.records {
        let end = (next + UNDER_WAY).min(dataset.records);
        requests.clear();
        (next..end).for_each(|id| append_set(&mut requests, &head, dataset.value_bytes, id));
        stream.write_all(&requests)?;
        let answers = &mut answers[..(end - next) as usize * OK.len()];
        stream.read_exact(answers)?;
        ensure!(
            answers.chunks(OK.len()).all(|answer| answer == OK),
            "a record that is written is answered by {:?}",
            String::from_utf8_lossy(answers)
        );
        next = end;
    }
    Ok(())
}
