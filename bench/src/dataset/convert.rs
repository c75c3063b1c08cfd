//! Converts a Parquet file to the input of other systems, as fast as we can.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Result, ensure};

use super::{KEY_BYTES, file, sorted::SortedRecords};
use crate::peers::fondaco::STORE;

const BUFFER_BYTES: usize = 1 << 20;

/// An input format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// `SET` commands for `redis-cli --pipe`, in the order of the file.
    Redis,
    /// Tab-separated values for `LOAD DATA`, in the order of the keys: sorted input loads several times faster into a
    /// primary key.
    Tsv,
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
