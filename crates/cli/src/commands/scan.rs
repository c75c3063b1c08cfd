//! `fondaco scan`: the keys of a store, over RESP, which is what a scan of many keys is fast over.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use fondaco_model::StoreName;
use redis::{ConnectionAddr, ConnectionLike, IntoConnectionInfo, RedisConnectionInfo};
use serde_json::json;

use crate::arguments::Tls;
use crate::named_tls::NamedTls;
use crate::output::Output;

/// How many keys to ask for at a time.
const KEYS_PER_REQUEST: u64 = 1000;

/// `fondaco scan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints a key a line, as it is on the wire; with --json a JSON object a line. The order is that of hashes.

Example:
  fondaco scan pymk --match '1*' --limit 10")]
pub struct ScanOptions {
    /// The store
    store: StoreName,

    /// Print only keys that this pattern matches: * ? [a-z]
    #[arg(long = "match", value_name = "PATTERN", default_value = "*")]
    pattern: String,

    /// Print so many keys at most
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    /// The RESP port of the node
    #[arg(
        long,
        env = "FONDACO_RESP",
        default_value = "127.0.0.1:6500",
        value_name = "HOST:PORT"
    )]
    resp: String,

    /// Who you are
    #[arg(long, env = "FONDACO_USER", requires = "password")]
    user: Option<String>,

    /// The password
    #[arg(long, env = "FONDACO_PASSWORD", hide_env_values = true)]
    password: Option<String>,

    #[command(flatten)]
    tls: Tls,
}

/// Prints keys.
pub fn scan(options: &ScanOptions, output: &Output) -> anyhow::Result<()> {
    let mut connection = connect(options)?;
    let pattern = format!("{}:{}", options.store, options.pattern);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut cursor = 0u64;
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(&pattern);
        command.arg("COUNT").arg(left.clamp(1, KEYS_PER_REQUEST));
        let (next, keys): (u64, Vec<Vec<u8>>) = command.query(&mut *connection).map_err(refused)?;
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
                serde_json::to_writer(&mut out, &line)?;
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

fn connect(options: &ScanOptions) -> anyhow::Result<Box<dyn ConnectionLike>> {
    let address = &options.resp;
    let failed = |error: &dyn std::fmt::Display| {
        anyhow!(
            "cannot connect to {address}: {error}; say where with --resp or FONDACO_RESP, and who with --user and --password"
        )
    };
    if let Some(path) = &options.tls.ca {
        let pem = fs::read(path).with_context(|| format!("cannot read the certificates in {path:?}"))?;
        let mut connection = NamedTls::connect(address, &pem).map_err(|error| failed(&format!("{error:#}")))?;
        if let Some(password) = &options.password {
            let user = options.user.as_deref();
            connection
                .authenticate(user, password)
                .map_err(|error| failed(&error))?;
        }
        return Ok(Box::new(connection));
    }
    let scheme = if options.tls.tls { "rediss" } else { "redis" };
    let invalid = || format!("invalid address {address:?}: use host:port");
    let info = format!("{scheme}://{address}")
        .into_connection_info()
        .with_context(invalid)?;
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = &options.user {
        login = login.set_username(user);
    }
    if let Some(password) = &options.password {
        login = login.set_password(password);
    }
    let info = info.set_redis_settings(login);
    debug_assert!(matches!(
        info.addr(),
        ConnectionAddr::Tcp(..) | ConnectionAddr::TcpTls { .. }
    ));
    let connection = redis::Client::open(info).and_then(|client| client.get_connection());
    Ok(Box::new(connection.map_err(|error| failed(&error))?))
}

/// The node's words, without those of the library around them.
fn refused(error: redis::RedisError) -> anyhow::Error {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => anyhow!("{code} {detail}"),
        _ => error.into(),
    }
}
