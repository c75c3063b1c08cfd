//! The entries that outlive the process: one file of redb, which commits a transaction as a whole or not at all.
//!
//! A commit is synced in two phases. So a file whose newest transaction does not verify is damaged, not merely
//! interrupted, and is refused: a write that was acknowledged is never dropped silently. All checksums are verified
//! when the file is opened.
//!
//! After a failed commit, the contents of the disk are known only when the file was opened again: see [`Disk::reopen`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use crate::entry::{Entry, Revision};
use crate::error::CoordinationError;
use crate::path::EntryPath;

const FILE: &str = "entries.redb";
/// A new file, until it is complete and gets its name.
const NEW_FILE: &str = "entries.redb.new";

/// Path → revision and bytes.
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// One row: the last revision that was assigned. Its entry may have been deleted since.
const REVISION: TableDefinition<(), u64> = TableDefinition::new("revision");

/// All entries are in memory anyway: see [`super::tree`].
const CACHE_BYTES: usize = 1 << 20;

/// How long opening waits for a file that is still open: a thread of this process may be ending the last session with
/// it.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);
const CLOSE_WAIT_STEP: Duration = Duration::from_millis(10);

/// An entry to write, or to delete if the bytes are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) path: EntryPath,
    pub(super) entry: Option<Entry>,
}

/// The contents of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) entries: BTreeMap<EntryPath, Entry>,
    pub(super) revision: u64,
}

/// The file of the entries.
pub(super) struct Disk {
    file: PathBuf,
    /// `None` after a failed commit.
    database: Option<Database>,
}

impl Disk {
    /// Opens the file in a directory, creates both if needed, and reads all entries.
    pub(super) fn open(root: &Path) -> Result<(Self, Stored), CoordinationError> {
        let file = root.join(FILE);
        if !file.exists() {
            create(root).map_err(|error| failed("create", &file, error))?;
        }
        let mut disk = Self { file, database: None };
        let stored = disk.reopen()?.unwrap_or_default();
        Ok((disk, stored))
    }

    /// Opens the file again if the last commit failed, and reads its contents.
    pub(super) fn reopen(&mut self) -> Result<Option<Stored>, CoordinationError> {
        if self.database.is_some() {
            return Ok(None);
        }
        let opened = open(&self.file).and_then(|database| Ok((read(&database)?, database)));
        let (rows, database) = opened.map_err(|error| failed("open", &self.file, error))?;
        let mut stored = Stored {
            revision: rows.revision,
            ..Stored::default()
        };
        for (path, entry) in rows.entries {
            stored.entries.insert(path.parse()?, entry);
        }
        self.database = Some(database);
        Ok(Some(stored))
    }

    /// Commits all changes or none, durably.
    ///
    /// # Errors
    /// The operating system refused. The changes may be committed nevertheless: [`Disk::reopen`] finds out.
    pub(super) fn commit(&mut self, puts: &[Put], revision: Revision) -> Result<(), CoordinationError> {
        if puts.is_empty() {
            return Ok(());
        }
        let Some(database) = self.database.take() else {
            let source = io::Error::other("an earlier write failed");
            return Err(failed("write", &self.file, source.into()));
        };
        write(&database, puts, revision).map_err(|error| failed("write", &self.file, error))?;
        self.database = Some(database);
        Ok(())
    }
}

/// The contents of a file, before its paths are checked.
struct Rows {
    entries: Vec<(String, Entry)>,
    revision: u64,
}

/// Creates the file under a temporary name, and renames it when it is complete and durable.
fn create(root: &Path) -> Result<(), redb::Error> {
    fondaco_durable::create_directory(root)?;
    let new = root.join(NEW_FILE);
    fondaco_durable::remove_file(&new)?;
    if let Some(other) = fs::read_dir(root)?.next() {
        let other = other?.file_name();
        let reason = format!("it is missing, but its directory holds {other:?}, of another release or another program");
        return Err(redb::Error::Corrupted(reason));
    }
    write(&Database::create(&new)?, &[], Revision::new(0))?;
    fondaco_durable::rename(&new, &root.join(FILE))?;
    Ok(())
}

fn open(file: &Path) -> Result<Database, redb::Error> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    let deadline = Instant::now() + CLOSE_WAIT_MAX;
    loop {
        match builder.open(file) {
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < deadline => thread::sleep(CLOSE_WAIT_STEP),
            opened => return Ok(opened?),
        }
    }
}

fn read(database: &Database) -> Result<Rows, redb::Error> {
    let transaction = database.begin_read()?;
    let mut entries = Vec::new();
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (path, entry) = row?;
        let (revision, bytes) = entry.value();
        let entry = Entry {
            bytes: bytes.to_vec(),
            revision: Revision::new(revision),
        };
        entries.push((path.value().to_owned(), entry));
    }
    let revision = transaction.open_table(REVISION)?.get(())?;
    let revision = revision.map_or(0, |revision| revision.value());
    Ok(Rows { entries, revision })
}

fn write(database: &Database, puts: &[Put], revision: Revision) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    let mut entries = transaction.open_table(ENTRIES)?;
    for Put { path, entry } in puts {
        match entry {
            Some(entry) => drop(entries.insert(path.as_str(), (entry.revision.get(), entry.bytes.as_slice()))?),
            None => drop(entries.remove(path.as_str())?),
        }
    }
    drop(entries);
    transaction.open_table(REVISION)?.insert((), revision.get())?;
    Ok(transaction.commit()?)
}

fn failed(action: &'static str, file: &Path, error: redb::Error) -> CoordinationError {
    let file = file.to_owned();
    match error {
        redb::Error::Io(source) if !is_damage(&source) => CoordinationError::Io { action, file, source },
        redb::Error::Io(_) | redb::Error::Corrupted(_) | redb::Error::UpgradeRequired(_) => {
            let reason = error.to_string();
            CoordinationError::Corrupt { file, reason }
        }
        other => CoordinationError::Io {
            action,
            file,
            source: io::Error::other(other),
        },
    }
}

/// Whether the bytes of the file are wrong, as opposed to an error of the operating system.
fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use fondaco_testing::fail_syncs_of_this_thread;

    use super::*;

    /// How many bytes of the file are damaged, one at a time.
    const DAMAGES: usize = 150;
    /// Each of the first used bytes is damaged: they hold the layout.
    const HEADER_BYTES: usize = 100;

    fn put(path: &str, bytes: &[u8], revision: u64) -> Put {
        let entry = Entry {
            bytes: bytes.to_vec(),
            revision: Revision::new(revision),
        };
        Put {
            path: path.parse().unwrap(),
            entry: Some(entry),
        }
    }

    fn stored(puts: &[Put], revision: u64) -> Stored {
        let entry = |put: &Put| (put.path.clone(), put.entry.clone().unwrap());
        Stored {
            entries: puts.iter().map(entry).collect(),
            revision,
        }
    }

    fn opened(root: &Path) -> Result<Stored, CoordinationError> {
        Disk::open(root).map(|(_, stored)| stored)
    }

    #[test]
    fn a_deleted_entry_leaves_its_revision_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path()).unwrap();
        disk.commit(&[put("a", b"1", 7)], Revision::new(7)).unwrap();
        let path = "a".parse().unwrap();
        disk.commit(&[Put { path, entry: None }], Revision::new(8)).unwrap();
        drop(disk);
        assert_eq!(opened(dir.path()).unwrap(), stored(&[], 8));
    }

    #[test]
    fn a_file_cut_short_is_an_error_and_never_data() {
        let dir = tempfile::tempdir().unwrap();
        let puts = [put("a", b"some bytes", 7), put("b", &[7; 20_000], 7)];
        Disk::open(dir.path())
            .unwrap()
            .0
            .commit(&puts, Revision::new(7))
            .unwrap();
        let file = dir.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        for length in (0..whole.len()).step_by(whole.len() / 50) {
            fs::write(&file, &whole[..length]).unwrap();
            let error = opened(dir.path()).unwrap_err();
            assert!(matches!(error, CoordinationError::Corrupt { .. }), "{length}: {error}");
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(opened(dir.path()).unwrap(), stored(&puts, 7));
    }

    #[test]
    fn a_changed_byte_is_an_error_or_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path()).unwrap();
        let puts = [put("a", b"some bytes", 1), put("b", &[7; 2000], 2)];
        for (number, put) in (1..).zip(puts.clone()) {
            disk.commit(&[put], Revision::new(number)).unwrap();
        }
        drop(disk);
        let file = dir.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        let used: Vec<_> = (0..whole.len()).filter(|&at| whole[at] != 0).collect();
        let mut refused = 0;
        let header = used.iter().take(HEADER_BYTES);
        for &at in header.chain(used.iter().step_by(used.len().div_ceil(DAMAGES))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&file, bytes).unwrap();
            match opened(dir.path()) {
                Ok(found) => assert_eq!(found, stored(&puts, 2), "byte {at}"),
                Err(error) => {
                    assert!(matches!(error, CoordinationError::Corrupt { .. }), "byte {at}: {error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
    }

    #[test]
    fn a_directory_of_another_release_is_refused_and_left_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("cluster")).unwrap();
        fs::write(dir.path().join("cluster/.entry"), b"fondaco-entry 1 7 0\n{}").unwrap();
        let error = opened(dir.path()).unwrap_err().to_string();
        assert!(error.contains("\"cluster\", of another release"), "{error}");
        assert!(!dir.path().join(FILE).exists());
        assert!(dir.path().join("cluster/.entry").exists());
    }

    #[test]
    fn an_unfinished_file_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NEW_FILE), b"half of it").unwrap();
        assert_eq!(opened(dir.path()).unwrap(), Stored::default());
        assert!(!dir.path().join(NEW_FILE).exists());
    }

    #[test]
    fn an_unsynced_commit_is_an_error_resolved_by_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path()).unwrap();
        let [before, after] = [put("a", b"1", 1), put("a", b"2", 2)];
        disk.commit(std::slice::from_ref(&before), Revision::new(1)).unwrap();
        std::thread::scope(|scope| {
            let failing = scope.spawn(|| {
                fail_syncs_of_this_thread();
                let commit = |disk: &mut Disk| disk.commit(std::slice::from_ref(&after), Revision::new(2));
                // The second commit finds the file still closed.
                [commit(&mut disk), commit(&mut disk)]
            });
            for failure in failing.join().unwrap() {
                let error = failure.unwrap_err();
                assert!(matches!(error, CoordinationError::Io { .. }), "{error}");
            }
        });
        let found = disk.reopen().unwrap().unwrap();
        let either = [stored(&[before], 1), stored(std::slice::from_ref(&after), 2)];
        assert!(either.contains(&found), "{found:?}");
        disk.commit(&[put("b", b"3", 3)], Revision::new(3)).unwrap();
        drop(disk);
        assert_eq!(opened(dir.path()).unwrap().revision, 3);
    }
}
