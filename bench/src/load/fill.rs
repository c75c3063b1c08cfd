//! Writes records to a RESP server as fast as it accepts them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

use super::connection::{append_set, key_head};
use crate::dataset::Dataset;

/// The number of records in flight.
const UNDER_WAY: usize = 512;
const OK: &[u8] = b"+OK\r\n";

/// Writes all records of a dataset under their keys with this prefix, and checks each answer.
///
/// # Errors
/// A connection that fails, and any answer but `OK`.
pub fn fill(address: SocketAddr, prefix: &str, dataset: Dataset) -> Result<()> {
    write_records(address, prefix, dataset.value_bytes, 0..dataset.records)
}

/// The same for some records, given by number.
///
/// # Errors
/// As [`fill`].
pub fn write_records(
    address: SocketAddr,
    prefix: &str,
    value_bytes: usize,
    records: impl IntoIterator<Item = u64>,
) -> Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("could not connect to {address}"))?;
    stream.set_nodelay(true)?;
    let head = key_head(prefix);
    let mut requests = Vec::new();
    let mut answers = vec![0; UNDER_WAY * OK.len()];
    let mut records = records.into_iter();
    loop {
        requests.clear();
        let mut count = 0;
        for id in records.by_ref().take(UNDER_WAY) {
            append_set(&mut requests, &head, value_bytes, id);
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&requests)?;
        let answers = &mut answers[..count * OK.len()];
        stream.read_exact(answers)?;
        ensure!(
            answers.chunks(OK.len()).all(|answer| answer == OK),
            "the answer to a written record is {:?}",
            String::from_utf8_lossy(answers)
        );
    }
}
