//! `fondaco follow`: the changes of a store as JSON lines.

use std::io::{self, Write};
use std::thread;

use clap::Args;
use fondaco_export::{Followed, StoreFollower};
use fondaco_model::StoreName;

use super::build::unix_ms;
use crate::control_port::ControlPort;
use crate::output::{Output, Results};

/// How many changes are asked for at a time.
const CHANGES_AT_ONCE: u64 = 1000;

/// `fondaco follow`.
#[derive(Debug, Args)]
#[command(after_help = "\
Prints a JSON object per change: its key, the value before (if kept) and after (null if deleted), the version, the time of its event, and
its position. A follower that was stopped continues with --from POSITION.

Example:
  fondaco follow pymk --from beginning
  fondaco follow pymk --from version:7 --until-now
  fondaco follow counts --from 2026-11-26T08:00:00Z --decode")]
pub struct FollowOptions {
    /// The store
    store: StoreName,

    /// Where to begin: now; beginning, with all keys; version:NUMBER, with the changes since that version; a time such as
    /// 2026-11-26T08:00:00Z; or the position of a change
    #[arg(long, value_name = "PLACE", default_value = "now", value_parser = begin)]
    from: String,

    /// Print values as JSON, by the type that the store declares
    #[arg(long)]
    decode: bool,

    /// End after this many changes
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// End when there are no more changes for now
    #[arg(long)]
    until_now: bool,

    #[command(flatten)]
    node: ControlPort,
}

/// A place to begin, as the control port is told it.
pub(super) fn begin(text: &str) -> Result<String, String> {
    // A time begins with a digit, and no position does.
    match text.starts_with(|first: char| first.is_ascii_digit()) && text != "0" {
        true => Ok(format!("time:{}", unix_ms(text)?)),
        false => Ok(text.to_owned()),
    }
}

/// Prints changes.
pub fn follow(options: FollowOptions, output: &Output) -> anyhow::Result<()> {
    let FollowOptions {
        store,
        from,
        decode,
        limit,
        until_now,
        node,
    } = options;
    let mut follower = StoreFollower::new(&node.endpoint(), store, from, decode)?;
    let mut out = io::BufWriter::new(Results::begin());
    let mut left = limit.unwrap_or(u64::MAX);
    let mut is_told = false;
    while left > 0 {
        let at_once = left.min(CHANGES_AT_ONCE) as usize;
        match follower.next(at_once, !until_now)? {
            Followed::Page(page) => {
                left -= page.changes.len() as u64;
                for change in &page.changes {
                    serde_json::to_writer(&mut out, change).map_err(io::Error::from)?;
                    out.write_all(b"\n")?;
                }
                out.flush()?;
                is_told = false;
            }
            Followed::Nothing(page) => match page.waits_for {
                None if until_now => break,
                Some(reason) if !is_told => {
                    output.note(&format!("waiting: {reason}"));
                    is_told = true;
                }
                _ => {}
            },
            Followed::Failed(error, pause) => {
                if !is_told {
                    output.note(&format!("waiting: {error}"));
                    is_told = true;
                }
                thread::sleep(pause);
            }
        }
    }
    Ok(())
}
