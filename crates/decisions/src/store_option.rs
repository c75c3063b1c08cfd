//! The options of stores: which kind of store has which, its name at the command line, and its member of the documents
//! that create, change and show stores.

use fondaco_model::{StoreKind, StoreName};

use crate::operator::OperatorError;

/// An option of a store.
#[derive(Debug)]
pub struct StoreOption {
    /// The name at the command line, without the dashes.
    pub name: &'static str,
    /// The member of a document for each kind that has the option.
    members: [Option<&'static str>; 3],
    /// Whether it can be given only when a store is created.
    pub is_fixed: bool,
}

/// Makes the table: `batch`, `hybrid` and `versioned` have the option as that member of a document.
macro_rules! options {
    ($($name:literal $batch:tt $hybrid:tt $versioned:tt $(($fixed:ident))?,)*) => {
        &[$(StoreOption {
            name: $name,
            members: [options!(@ $batch), options!(@ $hybrid), options!(@ $versioned)],
            is_fixed: options!(? $($fixed)?),
        }),*]
    };
    (@ -) => { None };
    (@ $member:literal) => { Some($member) };
    (?) => { false };
    (? fixed) => { true };
}

impl StoreOption {
    /// All options.
    #[rustfmt::skip]
    pub const ALL: &[Self] = options![
        "backups"               "backups"               "backups"               -,
        "replicas"              "replicas"              "replicas"              "replicas",
        "everywhere"            "everywhere"            "everywhere"            -,
        "tolerate-failures"     "tolerate_failures"     "tolerate_failures"     -,
        "read-keys-per-second"  "read_keys_per_second"  "read_keys_per_second"  "read_keys_per_second",
        "space-quota"           "space_quota_bytes"     "space_quota_bytes"     "space_quota_bytes",
        "fan-out"               "fan_out"               "fan_out"               -,
        "value-type"            "value_type"            -                       "value_type" (fixed),
        "stream"                -                       "stream.source"         - (fixed),
        "rewind"                -                       "stream.rewind_ms"      -,
        "max-lag"               -                       "stream.lag_ms"         -,
        "grace"                 -                       "stream.grace_ms"       - (fixed),
        "compact-every"         -                       "stream.compact_ms"     -,
        "partitioner"           -                       "stream.partitioner"    - (fixed),
        "paused"                -                       "stream.paused"         -,
        "engine"                -                       "stream.engine"         "versioned.engine" (fixed),
        "reads"                 -                       -                       "versioned.reads",
        "writes"                -                       -                       "versioned.writes",
        "preferred-reads"       -                       -                       "versioned.preferred_reads",
        "preferred-writes"      -                       -                       "versioned.preferred_writes",
        "handoff"               -                       -                       "versioned.handoff",
        "sloppy"                -                       -                       "versioned.sloppy",
        "zone-reads"            -                       -                       "versioned.zone_reads",
        "zone-writes"           -                       -                       "versioned.zone_writes",
        "durability"            -                       -                       "versioned.durability",
        "resolution"            -                       -                       "versioned.resolution",
        "ttl"                   -                       -                       "versioned.ttl_ms",
        "tombstone-grace"       -                       -                       "versioned.tombstone_grace_ms",
        "write-keys-per-second" -                       -                       "versioned.write_keys_per_second",
    ];

    /// The option of this name at the command line.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|option| option.name == name)
    }

    /// The option that is this member of a document.
    pub fn of_member(member: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|option| option.members.contains(&Some(member)))
    }

    /// The member of a document for a store of this kind, if the kind has the option.
    pub fn member(&self, kind: StoreKind) -> Option<&'static str> {
        self.members[kind as usize]
    }

    /// The kinds that have the option, in words: `batch and hybrid`.
    pub fn kinds(&self) -> String {
        let kinds = StoreKind::ALL.iter().filter(|&&kind| self.member(kind).is_some());
        let kinds: Vec<&str> = kinds.map(|kind| kind.as_str()).collect();
        kinds.join(" and ")
    }

    /// Whether not all kinds have the option.
    pub fn is_special(&self) -> bool {
        self.members.contains(&None)
    }

    /// Checks that a store of this kind has the options that a document gives, when it `is_new`, or is changed. The store
    /// itself names its members.
    ///
    /// # Errors
    /// The kind does not have an option; or an option cannot be changed.
    pub fn check<'a>(
        store: &StoreName,
        kind: StoreKind,
        members: impl IntoIterator<Item = &'a str>,
        is_new: bool,
    ) -> Result<(), OperatorError> {
        let mut foreign = Vec::new();
        for member in members {
            let Some(option) = Self::of_member(member) else {
                continue;
            };
            match option.member(kind) {
                None => foreign.push(format!(
                    "--{} ({member}), only {} stores have it",
                    option.name,
                    option.kinds()
                )),
                Some(_) if option.is_fixed && !is_new => {
                    return Err(OperatorError::Unchangeable {
                        store: store.clone(),
                        what: option.name,
                    });
                }
                Some(own) if own != member => foreign.push(format!("{member}, it has {own}")),
                Some(_) => {}
            }
        }
        match foreign.is_empty() {
            true => Ok(()),
            false => Err(OperatorError::OtherKind {
                store: store.clone(),
                kind: kind.as_str(),
                foreign: foreign.join("; nor "),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: StoreKind, members: &[&str], is_new: bool) -> String {
        let checked = StoreOption::check(&"s".parse().unwrap(), kind, members.iter().copied(), is_new);
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_refusal_names_each_option_and_the_kinds_that_have_it() {
        let given = ["replicas", "versioned.ttl_ms", "everywhere", "stream.lag_ms"];
        let batch = refused(StoreKind::Batch, &given, true);
        assert!(
            batch.contains("--ttl (versioned.ttl_ms), only versioned stores have it"),
            "{batch}"
        );
        assert!(
            batch.contains("--max-lag (stream.lag_ms), only hybrid stores have it"),
            "{batch}"
        );
        assert!(!batch.contains("replicas") && !batch.contains("everywhere"), "{batch}");
        let versioned = refused(StoreKind::Versioned, &given, true);
        assert!(
            versioned.contains("--everywhere (everywhere), only batch and hybrid"),
            "{versioned}"
        );
    }

    #[test]
    fn an_option_in_the_place_of_another_kind_is_refused_with_its_own() {
        let hybrid = refused(StoreKind::Hybrid, &["versioned.engine"], true);
        assert!(hybrid.contains("versioned.engine, it has stream.engine"), "{hybrid}");
        assert_eq!(refused(StoreKind::Hybrid, &["stream.engine"], true), "");
        assert!(refused(StoreKind::Hybrid, &["versioned.engine"], false).contains("cannot be changed"));
    }
}
