//! The files of a backup, and when it is complete.
//!
//! ```text
//! hints-RUN.records.zst              hints, if writes may be on hints alone
//! partition-00000-RUN.records.zst    the records of a partition, one file for each
//! partition-00000-RUN.digests        their digests, for later backups
//! partition-00000-RUN.gone           of an incremental backup: the digests of earlier records that are gone or changed
//! backup.json                        the manifest: {"backup": {…}, "checksum": "…"}
//! ```
//!
//! The manifest names all other files, with their lengths and checksums, and has a checksum of its own, of the exact
//! bytes of the inner object. It is written last, whole or not at all: without a manifest there is no backup. A backup
//! that fails deletes its files; the next backup deletes the files that a killed one left. RUN differs for each
//! attempt, so that two attempts in one directory never confuse their files.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use fondaco_format::Checksum;
use fondaco_storage::Location;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cluster::StoreSettings;
use crate::digests;
use crate::records::RecordsFile;

/// The manifest's name.
const MANIFEST_FILE: &str = "backup.json";

/// The longest manifest, in bytes. The manifest of the largest number of partitions is far shorter.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// The format that is written.
const FORMAT: u32 = 2;

/// The formats that are read. In format 1 there were no digests.
const FORMATS_READ: std::ops::RangeInclusive<u64> = 1..=2;

/// The suffix of files of records.
const SUFFIX: &str = ".records.zst";

/// The suffix of files of digests.
const DIGESTS_SUFFIX: &str = ".digests";

/// The suffix of files of the digests of records that are gone or changed.
const GONE_SUFFIX: &str = ".gone";

/// The contents of a backup.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The store that was backed up.
    pub store: String,
    /// When the backup began, in milliseconds since 1970, by the clock of the machine that made it.
    pub began_unix_ms: u64,
    /// The store's settings.
    pub settings: StoreSettings,
    /// Of an incremental backup: the earlier one, whose records it does not repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// All files of records, in the order in which they were written.
    pub files: Vec<RecordsFile>,
}

/// The earlier backup of an incremental one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Since {
    /// Where it is.
    pub url: String,
    /// The checksum in its manifest.
    pub checksum: Checksum,
}

#[derive(Serialize)]
struct Inner<'a> {
    format: u32,
    #[serde(flatten)]
    manifest: &'a Manifest,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    backup: &'a RawValue,
    checksum: Checksum,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u64,
}

impl Manifest {
    /// Reads the manifest of the backup at a location, and its checksum.
    ///
    /// # Errors
    /// There is no complete manifest, or it has another format.
    pub fn read(location: &Location) -> anyhow::Result<(Self, Checksum)> {
        if !location.exists(MANIFEST_FILE)? {
            bail!("{location} holds no backup: it has no {MANIFEST_FILE}, which is written last");
        }
        let bytes = location.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX)?;
        let damaged = || format!("{MANIFEST_FILE} in {location} is damaged: use another backup");
        Self::from_bytes(&bytes).with_context(damaged)
    }

    /// Writes the manifest: from then on, there is a backup.
    ///
    /// # Errors
    /// A file is missing or damaged, or the storage fails.
    pub fn write(&self, location: &Location) -> anyhow::Result<()> {
        let found = location.list()?;
        for (name, bytes) in self.files.iter().flat_map(RecordsFile::files) {
            if !found.iter().any(|found| (&*found.name, found.bytes) == (name, bytes)) {
                bail!(
                    "{name} was changed since it was written: did another backup begin in {location}? Use one place for each"
                );
            }
        }
        location.write_atomically(MANIFEST_FILE, &self.to_bytes()?)?;
        Ok(())
    }

    /// The total length of all files.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().flat_map(RecordsFile::files);
        files.map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
    }

    /// The number of records that it leaves to earlier backups.
    pub fn unchanged(&self) -> u64 {
        let of_file = |file: &RecordsFile| {
            file.digests
                .as_ref()
                .map_or(0, |all| digests::count(all) - file.records)
        };
        self.files.iter().map(of_file).sum()
    }

    /// The number of records. A key for which nodes kept hints counts more than once.
    pub fn records(&self) -> u64 {
        self.files.iter().map(|file| file.records).fold(0, u64::saturating_add)
    }

    fn to_bytes(&self) -> anyhow::Result<Vec<u8>> {
        let inner = Inner {
            format: FORMAT,
            manifest: self,
        };
        let inner = serde_json::to_string_pretty(&inner)?;
        let checksum = Checksum::of(inner.as_bytes());
        Ok(format!("{{\"backup\": {inner},\n\"checksum\": \"{checksum}\"}}\n").into_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> anyhow::Result<(Self, Checksum)> {
        let Envelope { backup, checksum } = serde_json::from_slice(bytes)?;
        let inner = backup.get();
        if Checksum::of(inner.as_bytes()) != checksum {
            bail!("its checksum does not match");
        }
        let FormatOnly { format } = serde_json::from_str(inner)?;
        if !FORMATS_READ.contains(&format) {
            bail!("it has format {format}, and this release reads 1 to {FORMAT}: use another release");
        }
        let mut value: serde_json::Value = serde_json::from_str(inner)?;
        if let Some(object) = value.as_object_mut() {
            object.remove("format");
        }
        Ok((serde_json::from_value(value)?, checksum))
    }
}

/// The names of the files of one attempt.
pub struct Names {
    run: String,
}

impl Names {
    /// The names for a new attempt.
    pub fn new() -> anyhow::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let own = format!("{} {}", std::process::id(), now.as_nanos());
        let run = Checksum::of(own.as_bytes()).to_string();
        Ok(Self { run })
    }

    /// The file of a partition.
    pub fn of_partition(&self, partition: usize) -> String {
        format!("partition-{partition:05}-{}{SUFFIX}", self.run)
    }

    /// The file of the digests of a partition.
    pub fn of_digests(&self, partition: usize) -> String {
        format!("partition-{partition:05}-{}{DIGESTS_SUFFIX}", self.run)
    }

    /// The file of the digests of records of a partition that are gone or changed.
    pub fn of_gone(&self, partition: usize) -> String {
        format!("partition-{partition:05}-{}{GONE_SUFFIX}", self.run)
    }

    /// The file of hints.
    pub fn of_hints(&self) -> String {
        format!("hints-{}{SUFFIX}", self.run)
    }

    /// Deletes all files of this attempt.
    ///
    /// # Errors
    /// The storage fails.
    pub fn delete(&self, location: &Location) -> anyhow::Result<()> {
        for file in location.list()? {
            if file.name.contains(&self.run) {
                location.delete_file(&file.name)?;
            }
        }
        Ok(())
    }
}

/// Prepares a location for a backup: deletes the files of an interrupted backup, and nothing else.
///
/// # Errors
/// The location contains a backup or other files, or the storage fails.
pub fn clear(location: &Location) -> anyhow::Result<()> {
    if location.exists(MANIFEST_FILE)? {
        bail!("{location} holds a backup: choose another place, or delete it");
    }
    location.create_directory()?;
    if location.is_vacant()? {
        return Ok(());
    }
    let files = location.list()?;
    if let Some(other) = files.iter().find(|file| !is_left_over(&file.name)) {
        bail!(
            "{location} contains another file, {:?}: choose an empty place",
            other.name
        );
    }
    for file in &files {
        location.delete_file(&file.name)?;
    }
    Ok(())
}

/// Whether an interrupted backup can have left a file of this name.
fn is_left_over(name: &str) -> bool {
    // The temporary names of storages for a file that is being written: `.NAME.partial`, and in HDFS `.NAME.tmp.N`.
    let hidden = name.strip_prefix('.');
    let name = match hidden.map(|name| {
        name.strip_suffix(".partial")
            .or_else(|| Some(name.rsplit_once(".tmp.")?.0))
    }) {
        None => name,
        Some(Some(MANIFEST_FILE)) => return true,
        Some(Some(name)) => name,
        Some(None) => return false,
    };
    let mut suffixes = [SUFFIX, DIGESTS_SUFFIX, GONE_SUFFIX].into_iter();
    let Some(rest) = suffixes.find_map(|suffix| name.strip_suffix(suffix)) else {
        return false;
    };
    let (what, run) = rest.rsplit_once('-').unwrap_or_default();
    let is_partition = || {
        let number = what.strip_prefix("partition-");
        number.is_some_and(|number| number.len() == 5 && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    run.parse::<Checksum>().is_ok() && (what == "hints" || is_partition())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_backups_count_as_leftovers() {
        let names = Names::new().unwrap();
        let (partition, hints) = (names.of_partition(7), names.of_hints());
        let (digests, gone) = (names.of_digests(7), names.of_gone(7));
        for name in [&partition, &hints, &digests, &gone] {
            assert!(is_left_over(name), "{name}");
            assert!(is_left_over(&format!(".{name}.tmp.2")), "{name}");
            assert!(!is_left_over(&format!("{name}.old")), "{name}");
        }
        assert!(is_left_over(".backup.json.partial") && is_left_over(".backup.json.tmp.1"));
        for name in [
            "partition-7-0123456789abcdef.records.zst",
            "partition-00007.records.zst",
            "other-0123456789abcdef.records.zst",
            "0123456789abcdef.records.zst",
            "backup.json",
            ".notes.txt.partial",
            ".partial",
            "notes.txt",
        ] {
            assert!(!is_left_over(name), "{name}");
        }
    }

    #[test]
    fn two_attempts_have_no_file_name_in_common() {
        let (one, other) = (Names::new().unwrap(), Names::new().unwrap());
        assert_ne!(one.of_hints(), other.of_hints());
        assert_ne!(one.of_partition(3), other.of_partition(3));
    }

    fn manifest() -> Manifest {
        let versioned = fondaco_model::versioned::VersionedSettings::of(3);
        Manifest {
            store: "carts".to_owned(),
            began_unix_ms: 7,
            settings: StoreSettings {
                schemas: Vec::new(),
                created_unix_ms: 5,
                replicas: 3,
                value_type: Default::default(),
                versioned,
                others: [("read_keys_per_second".to_owned(), 5.into())].into_iter().collect(),
            },
            since: Some(Since {
                url: "s3://backups/earlier".to_owned(),
                checksum: Checksum::of(b"earlier"),
            }),
            files: vec![RecordsFile {
                name: "f".to_owned(),
                records: 1,
                bytes: 2,
                checksum: Checksum::of(b"file"),
                digests: None,
                gone: None,
            }],
        }
    }

    #[test]
    fn every_change_of_a_manifest_is_noticed() {
        let bytes = manifest().to_bytes().unwrap();
        assert_eq!(Manifest::from_bytes(&bytes).unwrap().0, manifest());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            // White space around the two members may change unnoticed.
            let read = Manifest::from_bytes(&changed);
            assert!(
                read.is_err() || read.is_ok_and(|(read, _)| read == manifest()),
                "byte {at}"
            );
        }
    }

    #[test]
    fn there_is_no_backup_without_all_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::local(dir.path());
        std::fs::write(dir.path().join("f"), "1").unwrap();
        let error = manifest().write(&location).unwrap_err().to_string();
        assert!(error.contains("another backup"), "{error}");
        assert!(Manifest::read(&location).is_err());
        std::fs::write(dir.path().join("f"), "12").unwrap();
        manifest().write(&location).unwrap();
        assert_eq!(Manifest::read(&location).unwrap().0, manifest());
    }
}
