//! `fondaco diff`: the keys that differ between two versions of a store.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fondaco_api::{UncountedNode, VersionDiff};
use fondaco_export::{Differences, export_differences};
use fondaco_model::{DiffCounts, StoreName, VersionNumber};

use super::build::prepare_process;
use super::push_progress::with_job;
use crate::control_port::ControlPort;
use crate::output::{self, Output, table};

/// `fondaco diff`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fondaco diff pymk 6 7\n  fondaco diff pymk 6 7 --to pymk.parquet")]
pub struct DiffOptions {
    /// The store
    store: StoreName,

    /// The former version; fondaco versions lists the kept versions
    from: VersionNumber,

    /// The later version
    to: VersionNumber,

    /// How long to wait for the nodes, in seconds, 1 to 86400
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// Write the keys that differ to this Parquet file, with both values as they are stored: both versions are fetched to this machine
    #[arg(long = "to", value_name = "FILE", conflicts_with = "seconds")]
    file: Option<PathBuf>,

    /// The directory for the versions that --to fetches
    #[arg(long, value_name = "DIRECTORY", env = "TMPDIR")]
    work: Option<PathBuf>,

    #[command(flatten)]
    node: ControlPort,
}

/// Runs `fondaco diff`.
pub fn diff(options: &DiffOptions, output: &Output) -> anyhow::Result<()> {
    let DiffOptions {
        store,
        from,
        to,
        seconds,
        file,
        work,
        node,
    } = options;
    if let Some(file) = file {
        let differences = Differences {
            store: store.clone(),
            from: *from,
            to: *to,
            endpoint: node.endpoint(),
            work: work.clone().unwrap_or_else(std::env::temp_dir),
        };
        prepare_process();
        let written = with_job(output, |job| export_differences(&differences, file, job))?;
        return output.result(&written, |written| {
            let (keys, bytes) = (output::count(written.keys), output::bytes(written.bytes));
            format!("{keys} keys that differ are in {}: {bytes}\n", file.display())
        });
    }
    let mut endpoint = node.endpoint();
    endpoint.request_time_max += Duration::from_secs(*seconds);
    let path = format!("/v1/stores/{store}/diff?from={from}&to={to}&seconds={seconds}");
    let diff: VersionDiff = endpoint.client()?.get(&path)?;
    output.result(&diff, text)
}

/// The sums as tables.
pub fn text(diff: &VersionDiff) -> String {
    let counts = &diff.counts;
    let share = |count: u64, total: u64| format!("{:.2}%", count as f64 * 100.0 / total.max(1) as f64);
    let (before, after) = (counts.keys_before, counts.keys_after);
    let row = |what: &str, count: u64, total: u64, keys: &[String]| {
        vec![
            what.to_owned(),
            output::count(count),
            share(count, total),
            keys.join(", "),
        ]
    };
    let DiffCounts {
        gone_keys,
        new_keys,
        changed_keys,
        ..
    } = counts;
    let rows = [
        row("gone", counts.gone, before, gone_keys),
        row("new", counts.new, after, new_keys),
        row("changed", counts.changed, before, changed_keys),
        row("equal", counts.equal, before, &[]),
    ];
    let mut text = format!(
        "version {}: {} keys, {}; version {}: {} keys, {}\n",
        diff.from,
        output::count(before),
        output::bytes(counts.bytes_before),
        diff.to,
        output::count(after),
        output::bytes(counts.bytes_after)
    );
    text += &table(
        &["KEYS", "COUNT", "SHARE", "SUCH AS"],
        &rows,
        &[false, true, true, false],
    );
    if !counts.fields.is_empty() {
        let row = |(field, &count): (&String, &u64)| vec![field.clone(), output::count(count), share(count, before)];
        let rows: Vec<Vec<String>> = counts.fields.iter().map(row).collect();
        text += &table(&["FIELD", "CHANGED", "SHARE"], &rows, &[false, true, true]);
    }
    for UncountedNode { node, reason } in &diff.missing {
        text += &format!("not counted: the partitions of node {node}: {reason}\n");
    }
    text
}
