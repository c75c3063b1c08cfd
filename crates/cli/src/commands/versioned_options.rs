//! The texts of `fondaco store` about the settings of versioned stores.

use fondaco_model::versioned::VersionedSettings;

use crate::output;

/// A warning about a store that needs all replicas of a key to read or to write it.
pub fn away_text(settings: &VersionedSettings, replicas: u32) -> String {
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
pub fn text(settings: &VersionedSettings) -> String {
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
