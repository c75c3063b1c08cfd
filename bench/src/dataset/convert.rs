//! Converts a Parquet file to the input of other systems, as fast as we can.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{KEY_BYTES, file, sorted::SortedRecords};
use crate::child::Child;
use crate::machine::process::Launch;
use crate::servers::fondaco::STORE;

const BUFFER_BYTES: usize = 1 << 20;

/// An input format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// `SET` commands for `redis-cli --pipe`, in the order of the file.
    Redis,
    /// Tab-separated values for `LOAD DATA`, in the order of the keys: sorted input loads several times faster into a
    /// primary key.
    Tsv,
}

/// Pipes all records of a Parquet file, converted by another process, into a program that loads them.
pub fn pipe_into(loader: Launch, parquet: &Path, to: Form, log: &Path, limit: Duration) -> Result<()> {
    let started = Instant::now();
    let parquet = parquet.to_owned();
    let converter = Child::Convert { parquet, to }.launch()?.log_to(log);
    let mut converter = converter.spawn(Stdio::null(), Stdio::piped())?;
    let rows = converter.child().stdout.take().context("a converter without output")?;
    loader
        .log_to(log)
        .spawn(rows.into(), Stdio::null())?
        .finish(started, limit)?;
    converter.finish(started, limit).map(drop)
}

/// Writes all records in a format to standard output.
pub fn run(parquet: &Path, form: Form) -> Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
    match form {
        Form::Redis => {
            let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{STORE}:", STORE.len() + 1 + KEY_BYTES);
            file::read(parquet, 0, 1, |key, value| {
                ensure!(key.len() == KEY_BYTES, "the key {key:?} is not of this benchmark");
                out.write_all(head.as_bytes())?;
                out.write_all(key)?;
                write!(out, "\r\n${}\r\n", value.len())?;
                out.write_all(value)?;
                out.write_all(b"\r\n")?;
                Ok(())
            })?;
        }
        // Neither keys nor values of the benchmark have anything to escape.
        Form::Tsv => SortedRecords::read(parquet)?.for_each(|key, value| {
            out.write_all(key)?;
            out.write_all(b"\t")?;
            out.write_all(value)?;
            out.write_all(b"\n")?;
            Ok(())
        })?,
    }
    out.flush()?;
    Ok(())
}
