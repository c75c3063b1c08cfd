//! An incremental backup and the earlier ones that it needs.
//!
//! Each backup of a chain has only the records that the one before does not have. It also lists the keys of that one
//! whose record is gone or has changed: their records in all earlier backups are left out. Such a list is needed
//! since a key may have been deleted and its tombstone collected. If two keys have one place, the restore merges the
//! records of both backups.

use std::collections::HashSet;

use anyhow::{Context, bail};
use fondaco_api::Frame;
use fondaco_format::{Checksum, FileEntry};
use fondaco_model::{StoreName, ValueType};
use fondaco_storage::Location;

use crate::cluster::StoreSettings;
use crate::digests::{Digest, DigestsReader};
use crate::manifest::{Manifest, Since};
use crate::records::RecordsFile;

/// The longest chain: each backup of it is read in a restore.
const CHAIN_MAX: usize = 1000;

/// A complete backup.
pub struct Backup {
    /// Where it is.
    pub location: Location,
    /// Its manifest.
    pub manifest: Manifest,
    checksum: Checksum,
}

impl Backup {
    fn read(location: &Location) -> anyhow::Result<Self> {
        let (manifest, checksum) = Manifest::read(location)?;
        Ok(Self {
            location: location.clone(),
            manifest,
            checksum,
        })
    }

    /// The earlier backup for a new one of a store with these settings and this number of partitions.
    ///
    /// # Errors
    /// There is no backup, or one that cannot be compared with.
    pub fn earlier(location: &Location, name: &StoreName, had: &StoreSettings, count: usize) -> anyhow::Result<Self> {
        let whole = "make a backup of everything, without --since";
        let chain = chain(location)
            .with_context(|| format!("a backup that builds on {location} could not be restored: {whole}"))?;
        if chain.len() == CHAIN_MAX {
            bail!(
                "{location} builds on {} backups, the most that can be: {whole}",
                CHAIN_MAX - 1
            );
        }
        let Some(found) = chain.into_iter().next_back() else {
            bail!("there is no backup in {location}");
        };
        let Manifest { store, settings, .. } = &found.manifest;
        if *store != name.as_str() || settings.created_unix_ms != had.created_unix_ms {
            bail!("{location} is a backup of another store, {store:?}, or of one that was dropped since: {whole}");
        }
        let partitions = found.partitions().count();
        if partitions != count {
            bail!("{location} has digests of {partitions} partitions, and there are {count} now: {whole}");
        }
        Ok(found)
    }

    /// The reference to this backup in the manifest of the next one.
    pub fn since(&self) -> Since {
        let path = self.location.local_path();
        let absolute = path.and_then(|path| std::path::absolute(path).ok());
        let location = absolute.map_or_else(|| self.location.clone(), Location::local);
        Since {
            url: location.to_string(),
            checksum: self.checksum,
        }
    }

    /// The file of the records of the backup before whose keys are gone, of the partition with this number.
    fn gone(&self, partition: usize) -> Option<(&Location, &FileEntry)> {
        let file = self.partitions().nth(partition)?;
        Some((&self.location, file.gone.as_ref()?))
    }

    /// The files of the partitions, in order, if they have digests.
    pub fn partitions(&self) -> impl Iterator<Item = &RecordsFile> {
        self.manifest.files.iter().filter(|file| file.digests.is_some())
    }
}

/// A backup and those that it needs, the oldest first.
///
/// # Errors
/// One of them is missing, or was replaced by another one.
pub fn chain(location: &Location) -> anyhow::Result<Vec<Backup>> {
    let mut chain = vec![Backup::read(location)?];
    while let Some(since) = chain.last().and_then(|last| last.manifest.since.clone()) {
        let needed = || {
            format!(
                "the backup in {location} needs the one in {}, which it builds on",
                since.url
            )
        };
        let earlier = Backup::read(&since.url.parse()?).with_context(needed)?;
        if earlier.checksum != since.checksum {
            bail!(
                "{}, and another one is there: put it back, or use another backup",
                needed()
            );
        }
        if chain.len() == CHAIN_MAX {
            bail!(
                "{}, and more than {CHAIN_MAX} backups in all: use an earlier one",
                needed()
            );
        }
        chain.push(earlier);
    }
    chain.reverse();
    Ok(chain)
}

/// A file of a chain, whose records are restored unless they are gone.
pub struct Piece<'a> {
    location: &'a Location,
    file: &'a RecordsFile,
    gone: Vec<(&'a Location, &'a FileEntry)>,
    store: StoreName,
    value_type: ValueType,
}

/// The files of a chain, the oldest first. Hints of earlier backups are in the records of later ones.
///
/// # Errors
/// The name of the store is invalid.
pub fn pieces(chain: &[Backup]) -> anyhow::Result<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    for (number, backup) in chain.iter().enumerate() {
        let later = &chain[number + 1..];
        let mut partition = 0;
        for file in &backup.manifest.files {
            let mut gone = Vec::new();
            if file.digests.is_some() {
                gone.extend(later.iter().filter_map(|later| later.gone(partition)));
                partition += 1;
            } else if !later.is_empty() {
                continue;
            }
            pieces.push(Piece {
                location: &backup.location,
                file,
                gone,
                store: backup.manifest.store.parse()?,
                value_type: backup.manifest.settings.value_type,
            });
        }
    }
    Ok(pieces)
}

impl Piece<'_> {
    /// How many records the file has.
    pub fn records(&self) -> u64 {
        self.file.records
    }

    /// Reads the records that are not gone.
    ///
    /// # Errors
    /// A file is damaged, or `each` fails.
    pub fn for_each(&self, mut each: impl FnMut(Frame) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut gone = HashSet::new();
        for (location, file) in &self.gone {
            gone.extend(DigestsReader::open(location, file)?.places()?);
        }
        self.file.for_each(self.location, |frame| {
            match !gone.is_empty() && gone.contains(&Digest::of(&self.store, self.value_type, &frame).place) {
                true => Ok(()),
                false => each(frame),
            }
        })
    }

    /// Reads the digests, with which a later backup is compared.
    ///
    /// # Errors
    /// They are damaged.
    pub fn verify_digests(&self) -> anyhow::Result<()> {
        if let Some(digests) = &self.file.digests {
            let mut reader = DigestsReader::open(self.location, digests)?;
            while reader.next()?.is_some() {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fondaco_model::versioned::{DotSource, Over, Record, ReplicaId, Update, VectorClock, VersionedSettings};
    use fondaco_model::{NodeId, member, slot_of_key};
    use tempfile::TempDir;

    use super::*;
    use crate::manifest::Names;
    use crate::partition::PartitionWriter;

    fn frame(key: &str, value: &str) -> Frame {
        let replica = ReplicaId {
            node: NodeId::FIRST,
            incarnation: 1,
        };
        let update = Update::put(value.to_owned().into(), 7, None);
        let over = VectorClock::new();
        let record = Record::write(None, &mut DotSource::new(replica, 0), Over::All(&over), update).unwrap();
        let key = key.as_bytes().to_vec();
        let record = record.to_bytes();
        Frame { key, record }
    }

    /// A backup of one partition with these records.
    fn backed_up(location: &Location, records: &[(&str, &str)], earlier: Option<&Backup>) -> Backup {
        let store: StoreName = "carts".parse().unwrap();
        let mut frames: Vec<Frame> = records.iter().map(|(key, value)| frame(key, value)).collect();
        let hash = |key: &[u8]| member::key_hash(ValueType::Bytes, key);
        frames.sort_by_key(|frame| member::position(slot_of_key(&store, &frame.key), hash(&frame.key)));
        let names = Names::new().unwrap();
        let kind = (&store, ValueType::Bytes);
        let mut writer = PartitionWriter::create(location, (&names, 0), earlier, kind).unwrap();
        frames.iter().for_each(|frame| writer.add(frame).unwrap());
        let manifest = Manifest {
            store: store.to_string(),
            began_unix_ms: 7,
            settings: StoreSettings {
                schemas: Vec::new(),
                created_unix_ms: 5,
                replicas: 3,
                value_type: ValueType::Bytes,
                versioned: VersionedSettings::of(3),
                others: Default::default(),
            },
            since: earlier.map(Backup::since),
            files: vec![writer.finish().unwrap()],
        };
        manifest.write(location).unwrap();
        Backup::read(location).unwrap()
    }

    #[test]
    fn records_that_are_gone_are_left_out_of_all_earlier_backups() {
        let dirs = [(); 4].map(|()| TempDir::new().unwrap());
        let [first, second, third, other] = [0, 1, 2, 3].map(|at| Location::local(dirs[at].path()));
        let one = backed_up(&first, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")], None);
        let two = backed_up(&second, &[("a", "1"), ("b", "2"), ("c", "1"), ("e", "2")], Some(&one));
        let last = [("a", "1"), ("d", "3"), ("e", "2")];
        let last_one = backed_up(&third, &last, Some(&two));
        let restored = |location: &Location| {
            let chain = chain(location).unwrap();
            let mut restored = Vec::new();
            for piece in pieces(&chain).unwrap() {
                let each = |frame: Frame| {
                    restored.push(String::from_utf8(frame.key).unwrap());
                    Ok(())
                };
                piece.for_each(each).unwrap();
            }
            restored.sort_unstable();
            restored.concat()
        };
        assert_eq!(restored(&first), "abcd");
        assert_eq!(restored(&second), "abce", "of b the later value alone");
        assert_eq!(restored(&third), "ade");

        backed_up(&other, &last, None);
        std::fs::copy(dirs[3].path().join("backup.json"), dirs[1].path().join("backup.json")).unwrap();
        let error = chain(&third).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("another one is there"), "{error}");
        let (store, settings) = (&last_one.manifest.store, &last_one.manifest.settings);
        let earlier = Backup::earlier(&third, &store.parse().unwrap(), settings, 1);
        let error = format!("{:#}", earlier.map(|_| ()).unwrap_err());
        assert!(
            error.contains("another one is there") && error.contains("without --since"),
            "{error}"
        );
    }
}
