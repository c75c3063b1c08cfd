//! `fondaco get` and `mget`: single lookups for people, over the control port.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use fondaco_api::{DecodedValue, LookupRequest, LookupResponse, LookupValue};
use fondaco_model::StoreName;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use super::WrongUsage;
use crate::control_port::ControlPort;
use crate::output::{Output, Results};

/// `fondaco get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 1 if the key is missing.

Example:
  fondaco get pymk:42
  fondaco get --decode 'carts:[\"ann\", 7]'")]
pub struct GetOptions {
    /// The key, with its store: store:key
    key: OsString,

    #[command(flatten)]
    form: Form,

    #[command(flatten)]
    node: ControlPort,
}

/// The form of values.
#[derive(Debug, Args)]
struct Form {
    /// Show values as JSON, by the type that the store declares, and take keys of several parts as JSON lists; on a terminal this is
    /// the default for stores that declare one
    #[arg(long)]
    decode: bool,

    /// Show the bytes of values
    #[arg(long, conflicts_with = "decode")]
    raw: bool,
}

impl Form {
    /// Whether to ask for JSON.
    fn decodes(&self) -> bool {
        self.decode || (!self.raw && io::stdout().is_terminal())
    }
}

/// `fondaco mget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints a line for each key found: the key, a tab, the value. Exit code 1 if any key is missing.

Example:
  fondaco mget pymk:42 pymk:43 features:42")]
pub struct MgetOptions {
    /// The keys, with their stores: store:key
    #[arg(required = true)]
    keys: Vec<String>,

    #[command(flatten)]
    form: Form,

    #[command(flatten)]
    node: ControlPort,
}

#[derive(Serialize)]
struct Found<'a> {
    key: &'a str,
    value: Option<&'a LookupValue>,
}

/// Runs `fondaco get`.
pub fn get(options: &GetOptions, output: &Output) -> anyhow::Result<()> {
    let wire_key = options.key.as_bytes();
    let shown = options.key.to_string_lossy();
    let Some(colon) = wire_key.iter().position(|&byte| byte == b':') else {
        return Err(WrongUsage(format!("invalid key {shown:?}: keys are written store:key")).into());
    };
    let store: StoreName = String::from_utf8_lossy(&wire_key[..colon])
        .parse()
        .map_err(|error| WrongUsage(format!("invalid key {shown:?}: {error}")))?;
    let key = percent_encode(&wire_key[colon + 1..], NON_ALPHANUMERIC);
    let client = options.node.client()?;
    let path = format!("/v1/stores/{store}/keys/{key}");
    if options.form.decodes() {
        match client.get::<DecodedValue>(&format!("{path}?decode=true")) {
            Ok(decoded) => return show_decoded(decoded, &shown, output),
            // Decoding was only the default of a terminal: the bytes are shown instead.
            Err(error) if error.code() == "not_decodable" && !options.form.decode => {}
            Err(error) => return Err(error.into()),
        }
    }
    let value = client.get_bytes(&path)?;
    if !output.is_json() {
        return output.bytes(&value);
    }
    let value = match String::from_utf8(value) {
        Ok(text) => LookupValue::Utf8(text),
        Err(error) => LookupValue::Base64(STANDARD.encode(error.as_bytes())),
    };
    let found = Found {
        key: &shown,
        value: Some(&value),
    };
    output.result(&found, |_| String::new())
}

fn show_decoded(decoded: DecodedValue, key: &str, output: &Output) -> anyhow::Result<()> {
    if !output.is_json() {
        let text = match io::stdout().is_terminal() {
            true => serde_json::to_string_pretty(&decoded.json)?,
            false => decoded.json.to_string() + "\n",
        };
        return output.bytes(text.as_bytes());
    }
    let value = Some(&LookupValue::Decoded(decoded));
    output.result(&Found { key, value }, |_| String::new())
}

/// Runs `fondaco mget`.
pub fn mget(options: &MgetOptions, output: &Output) -> anyhow::Result<()> {
    let request = LookupRequest {
        keys: options.keys.clone(),
        decode: options.form.decodes(),
    };
    let client = options.node.client()?;
    let response: LookupResponse = match client.post("/v1/lookup", &request) {
        Err(error) if error.code() == "not_decodable" && !options.form.decode => {
            let decode = false;
            client.post("/v1/lookup", &LookupRequest { decode, ..request })?
        }
        answer => answer?,
    };
    if response.values.len() != options.keys.len() {
        bail!(
            "the node answered for {} keys of {}",
            response.values.len(),
            options.keys.len()
        );
    }
    let found: Vec<Found<'_>> = options
        .keys
        .iter()
        .zip(&response.values)
        .map(|(key, value)| Found {
            key,
            value: value.as_ref(),
        })
        .collect();
    if output.is_json() {
        output.result(&found, |_| String::new())?;
    } else {
        let mut out = Results::begin();
        for Found { key, value } in &found {
            match value {
                Some(LookupValue::Utf8(text)) => writeln!(out, "{key}\t{text}")?,
                Some(LookupValue::Base64(text)) => {
                    let bytes = STANDARD.decode(text).context("the node answered with a broken value")?;
                    write!(out, "{key}\t")?;
                    out.write_all(&bytes)?;
                    out.write_all(b"\n")?;
                }
                Some(LookupValue::Decoded(decoded)) => writeln!(out, "{key}\t{}", decoded.json)?,
                None => {}
            }
        }
        out.flush()?;
    }
    let missing: Vec<&str> = found
        .iter()
        .filter(|found| found.value.is_none())
        .map(|found| found.key)
        .collect();
    match missing.as_slice() {
        [] => Ok(()),
        keys => bail!("not there: {}", keys.join(" ")),
    }
}
