//! `fondaco scan`: the keys of a store, over RESP, which is the fast port for many keys.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use fondaco_model::StoreName;
use serde_json::json;

use crate::control_port::ControlPort;
use crate::output::{Output, Results};

/// The number of keys to request at a time.
const KEYS_PER_REQUEST: u64 = 1000;

/// `fondaco scan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints one key per line, as raw bytes; with --json one JSON object per line. Keys are ordered by hash.

Example:
  fondaco scan pymk --match '1*' --limit 10")]
pub struct ScanOptions {
    /// The store
    store: StoreName,

    /// Print only keys that match this pattern: * ? [a-z]
    #[arg(long = "match", value_name = "PATTERN", default_value = "*")]
    pattern: String,

    /// Print at most this many keys
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    #[command(flatten)]
    node: ControlPort,
}

/// Prints keys.
pub fn scan(options: &ScanOptions, output: &Output) -> anyhow::Result<()> {
    let mut connection = options.node.connect()?;
    // A scan by a pattern finds nothing without an error if the store does not exist: this command fails then.
    let size = redis::cmd("FONDACO.SIZE")
        .arg(options.store.as_str())
        .query::<u64>(&mut *connection);
    size.map_err(fondaco_admin::refused)?;
    let pattern = format!("{}:{}", options.store, options.pattern);
    let mut out = io::BufWriter::new(Results::begin());
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut cursor = 0u64;
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(&pattern);
        command.arg("COUNT").arg(left.clamp(1, KEYS_PER_REQUEST));
        let (next, keys): (u64, Vec<Vec<u8>>) = command.query(&mut *connection).map_err(fondaco_admin::refused)?;
        for key in keys {
            if left == 0 {
                break;
            }
            left -= 1;
            if output.is_json() {
                let line = match String::from_utf8(key) {
                    Ok(text) => json!({ "key": text }),
                    Err(error) => json!({ "key_base64": STANDARD.encode(error.as_bytes()) }),
                };
                serde_json::to_writer(&mut out, &line).map_err(io::Error::from)?;
            } else {
                out.write_all(&key)?;
            }
            out.write_all(b"\n")?;
        }
        cursor = next;
        if cursor == 0 || left == 0 {
            break;
        }
    }
    out.flush()?;
    Ok(())
}
