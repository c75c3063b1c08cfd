//! Options of `fondaco store` for stores of kind versioned.

use clap::Args;
use fondaco_api::{VersionedOptions, VersionedResource};
use fondaco_model::versioned::{Durability, EngineKind, Handoff, Resolution};

use crate::output;

/// Settings of stores of kind versioned.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for versioned stores")]
#[group(id = "versioned", multiple = true)]
pub struct VersionedArguments {
    /// How many replicas must answer a read; a majority by default
    #[arg(long, value_name = "COUNT")]
    reads: Option<u32>,

    /// How many replicas must acknowledge a write; a majority by default
    #[arg(long, value_name = "COUNT")]
    writes: Option<u32>,

    /// How many replicas are asked at first; as many as must answer by default
    #[arg(long, value_name = "COUNT")]
    preferred_reads: Option<u32>,

    /// How many replicas a write waits for briefly; as many as must acknowledge by default
    #[arg(long, value_name = "COUNT")]
    preferred_writes: Option<u32>,

    /// Which node keeps a hint for a replica that is absent: none, consistent, any or proximity
    #[arg(long, value_name = "WHO")]
    handoff: Option<Handoff>,

    /// Whether a hint counts as a replica's acknowledgement of a write: true, as without a value, or false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    sloppy: Option<bool>,

    /// In how many other zones a replica must answer a read
    #[arg(long, value_name = "COUNT")]
    zone_reads: Option<u32>,

    /// In how many other zones a replica must acknowledge a write
    #[arg(long, value_name = "COUNT")]
    zone_writes: Option<u32>,

    /// The storage engine of replicas: disk, log, memory, cache or mysql; it cannot be altered
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineKind>,

    /// What an acknowledged write survives: log, a crash of the process; fsync, a power failure
    #[arg(long, value_name = "WHAT")]
    durability: Option<Durability>,

    /// How GET resolves concurrent values: latest, all, set or counter
    #[arg(long, value_name = "WHAT")]
    resolution: Option<Resolution>,

    /// How long a value lives if its writer sets no expiry; 0 is for ever
    #[arg(long, value_name = "DURATION", value_parser = output::parse_span_ms)]
    ttl: Option<u64>,

    /// How long a tombstone is kept; ten days by default
    #[arg(long, value_name = "DURATION", value_parser = output::parse_span_ms)]
    tombstone_grace: Option<u64>,

    /// How many keys per second may be written through all routers, and to all nodes; 0 is no limit
    #[arg(long, value_name = "COUNT")]
    write_keys_per_second: Option<u64>,
}

impl VersionedArguments {
    /// The given options; `None` if no option was given.
    pub fn options(&self) -> Option<VersionedOptions> {
        let options = VersionedOptions {
            reads: self.reads,
            writes: self.writes,
            preferred_reads: self.preferred_reads,
            preferred_writes: self.preferred_writes,
            handoff: self.handoff,
            sloppy: self.sloppy,
            zone_reads: self.zone_reads,
            zone_writes: self.zone_writes,
            engine: self.engine,
            durability: self.durability,
            resolution: self.resolution,
            ttl_ms: self.ttl,
            tombstone_grace_ms: self.tombstone_grace,
            write_keys_per_second: self.write_keys_per_second,
        };
        (options != VersionedOptions::default()).then_some(options)
    }
}

/// A warning about a store that needs all replicas of a key to read or to write it.
pub fn away_text(settings: &VersionedResource, replicas: u32) -> String {
    let stops = match (
        settings.reads == replicas,
        settings.writes == replicas && !settings.sloppy,
    ) {
        _ if replicas < 2 => return String::new(),
        (true, true) => "neither read nor written",
        (true, false) => "not read",
        (false, true) => "not written",
        (false, false) => return String::new(),
    };
    let remedy = match (replicas, stops) {
        (2, "neither read nor written") => "--replicas 3 keeps both, and --reads 1 keeps reads",
        _ => "lower --reads or --writes, or have more replicas, with R + W above their number",
    };
    format!(
        "while one of the {replicas} nodes of a key is away, the key is {stops} (NOQUORUM): {remedy}; see fondaco store alter --help\n"
    )
}

/// The settings of a store, as text.
pub fn text(settings: &VersionedResource) -> String {
    let preferred = |count: u32, required: u32, done: &str| match count > required {
        true => format!(" ({count} {done})"),
        false => String::new(),
    };
    let mut text = format!(
        "reads {}{}, writes {}{}, {} engine, acknowledged after {}, {} of concurrent values\n",
        settings.reads,
        preferred(settings.preferred_reads, settings.reads, "asked"),
        settings.writes,
        preferred(settings.preferred_writes, settings.writes, "waited for"),
        settings.engine,
        settings.durability,
        settings.resolution,
    );
    if settings.zone_reads > 0 || settings.zone_writes > 0 {
        text.push_str(&format!(
            "other zones that must answer: {} for a read, {} for a write\n",
            settings.zone_reads, settings.zone_writes
        ));
    }
    let counted = if settings.sloppy {
        ", which counts as written"
    } else {
        ""
    };
    text.push_str(&format!("handoff {}{counted}\n", settings.handoff));
    if let Some(ttl_ms) = settings.ttl_ms {
        text.push_str(&format!(
            "values live {} unless their writers set an expiry\n",
            output::span(ttl_ms)
        ));
    }
    text.push_str(&format!(
        "tombstones are kept for {}\n",
        output::span(settings.tombstone_grace_ms)
    ));
    if let Some(limit) = settings.write_keys_per_second {
        text.push_str(&format!("at most {} keys a second are written\n", output::count(limit)));
    }
    text
}
