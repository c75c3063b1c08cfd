//! Entries as files, and transactions over them.
//!
//! The entry `a/b` is the file `a/b/.entry`: no name begins with a dot, so that it is never taken for
//! a child. A file is a line `fondaco-entry 1 REVISION CHECKSUM`, and the entry's bytes after it. It is
//! written beside its place, made durable, renamed, and the renaming made durable before the write is
//! acknowledged: after a crash the old or the new entry is there, whole.
//!
//! A transaction of several writes is first written as one file, `.transaction`, in the same way: from
//! then on it is done, whatever happens. Then its entries are written, and then it is deleted; an opening
//! that finds one does that again. It is a line `fondaco-transaction 1 CHECKSUM`, and for each entry
//! a line `write REVISION LENGTH PATH` with the bytes after it, or a line `delete PATH`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::entry::{Entry, Revision};
use crate::error::CoordinationError;
use crate::path::EntryPath;

const ENTRY_FILE: &str = ".entry";
const ENTRY_MAGIC: &str = "fondaco-entry 1";
const TRANSACTION_FILE: &str = ".transaction";
const TRANSACTION_MAGIC: &str = "fondaco-transaction 1";
const NEW_SUFFIX: &str = ".new";

/// An entry to be written, or to be deleted if there is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Put {
    pub(super) path: EntryPath,
    pub(super) entry: Option<Entry>,
}

/// The directory of the entries.
pub(super) struct Disk {
    root: PathBuf,
    left: Left,
}

/// What the last transaction left of its file.
enum Left {
    Nothing,
    /// It is done, but not all of its entries are written yet.
    Unwritten(Vec<Put>),
    /// It failed, but its file may be there.
    Refused,
}

impl Disk {
    /// Opens a directory, made if need be, and reads all entries in it.
    pub(super) fn open(root: PathBuf) -> Result<(Self, BTreeMap<EntryPath, Entry>), CoordinationError> {
        create_durably(&root)?;
        let file = root.join(TRANSACTION_FILE);
        let left = match fs::read(&file) {
            Ok(bytes) => match decode_transaction(&bytes) {
                Ok(puts) => Left::Unwritten(puts),
                Err(reason) => return Err(CoordinationError::Corrupt { file, reason }),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Left::Nothing,
            Err(e) => return Err(failed("read", &file)(e)),
        };
        let mut disk = Self { root, left };
        disk.settle()?;
        let mut entries = BTreeMap::new();
        disk.read_below(None, &mut entries)?;
        Ok((disk, entries))
    }

    pub(super) fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError> {
        if let Left::Unwritten(puts) = &self.left
            && let Some(put) = puts.iter().find(|put| put.path == *path)
        {
            return Ok(put.entry.clone());
        }
        let file = self.dir_of(path).join(ENTRY_FILE);
        match fs::read(&file) {
            Ok(bytes) => decode_entry(&bytes)
                .map(Some)
                .map_err(|reason| CoordinationError::Corrupt { file, reason }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("read", &file)(e)),
        }
    }

    /// Does all of it or nothing, durably.
    pub(super) fn commit(&mut self, puts: &[Put]) -> Result<(), CoordinationError> {
        self.settle()?;
        match puts {
            [] => Ok(()),
            [put] => self.put(put),
            _ => {
                self.left = Left::Refused;
                write_durably(&self.root, TRANSACTION_FILE, &encode_transaction(puts))?;
                self.left = Left::Unwritten(puts.to_vec());
                // It is done. What cannot be written now is written before the next change.
                if let Err(error) = self.settle() {
                    tracing::warn!(%error, "a transaction is durable, but not all of its entries are written yet");
                }
                Ok(())
            }
        }
    }

    /// Finishes or discards what the last transaction left.
    fn settle(&mut self) -> Result<(), CoordinationError> {
        match &self.left {
            Left::Nothing => return Ok(()),
            Left::Unwritten(puts) => puts.iter().try_for_each(|put| self.put(put))?,
            Left::Refused => {}
        }
        remove_durably(&self.root, TRANSACTION_FILE)?;
        self.left = Left::Nothing;
        Ok(())
    }

    fn put(&self, put: &Put) -> Result<(), CoordinationError> {
        let dir = self.dir_of(&put.path);
        match &put.entry {
            Some(entry) => {
                create_durably(&dir)?;
                write_durably(&dir, ENTRY_FILE, &encode_entry(entry))
            }
            None => {
                remove_durably(&dir, ENTRY_FILE)?;
                // What is left is an empty directory, which means nothing; it stays if entries are below it.
                let _ = fs::remove_dir(&dir);
                Ok(())
            }
        }
    }

    fn dir_of(&self, path: &EntryPath) -> PathBuf {
        self.root.join(path.as_str())
    }

    fn read_below(
        &self,
        above: Option<&EntryPath>,
        entries: &mut BTreeMap<EntryPath, Entry>,
    ) -> Result<(), CoordinationError> {
        let dir = above.map_or_else(|| self.root.clone(), |path| self.dir_of(path));
        for found in fs::read_dir(&dir).map_err(failed("list", &dir))? {
            let found = found.map_err(failed("list", &dir))?;
            let is_dir = found.file_type().map_err(failed("list", &dir))?.is_dir();
            let name = found.file_name().to_string_lossy().into_owned();
            if !is_dir || !EntryPath::is_name(&name) {
                continue;
            }
            let path = match above {
                Some(above) => above.join(&name)?,
                None => EntryPath::new([name.as_str()])?,
            };
            if let Some(entry) = self.read(&path)? {
                entries.insert(path.clone(), entry);
            }
            self.read_below(Some(&path), entries)?;
        }
        Ok(())
    }
}

fn encode_entry(entry: &Entry) -> Vec<u8> {
    let (revision, checksum) = (entry.revision, xxh3_64(&entry.bytes));
    let mut file = format!("{ENTRY_MAGIC} {revision} {checksum:016x}\n").into_bytes();
    file.extend_from_slice(&entry.bytes);
    file
}

fn decode_entry(file: &[u8]) -> Result<Entry, &'static str> {
    let (fields, bytes) = decode_line(file, ENTRY_MAGIC)?;
    let (revision, checksum) = fields.split_once(' ').ok_or("its first line has too few fields")?;
    let revision = revision.parse().map_err(|_| "its revision is no number")?;
    if *checksum != format!("{:016x}", xxh3_64(bytes)) {
        return Err("its checksum does not match");
    }
    Ok(Entry {
        bytes: bytes.to_vec(),
        revision: Revision::new(revision),
    })
}

fn encode_transaction(puts: &[Put]) -> Vec<u8> {
    let mut body = Vec::new();
    for Put { path, entry } in puts {
        match entry {
            Some(Entry { bytes, revision }) => {
                body.extend_from_slice(format!("write {revision} {} {path}\n", bytes.len()).as_bytes());
                body.extend_from_slice(bytes);
            }
            None => body.extend_from_slice(format!("delete {path}\n").as_bytes()),
        }
    }
    let mut file = format!("{TRANSACTION_MAGIC} {:016x}\n", xxh3_64(&body)).into_bytes();
    file.extend_from_slice(&body);
    file
}

fn decode_transaction(file: &[u8]) -> Result<Vec<Put>, &'static str> {
    let (checksum, mut body) = decode_line(file, TRANSACTION_MAGIC)?;
    if *checksum != format!("{:016x}", xxh3_64(body)) {
        return Err("its checksum does not match");
    }
    let mut puts = Vec::new();
    while !body.is_empty() {
        let (line, rest) = split_line(body)?;
        let fields: Vec<_> = line.split(' ').collect();
        let path = fields.last().and_then(|path| path.parse().ok());
        let path = path.ok_or("it has no path where one must be")?;
        let entry = match fields[..] {
            ["write", revision, length, _] => {
                let revision = revision.parse().map_err(|_| "a revision in it is no number")?;
                let length = length.parse().map_err(|_| "a length in it is no number")?;
                let (bytes, after) = rest.split_at_checked(length).ok_or("it ends too early")?;
                body = after;
                Some(Entry {
                    bytes: bytes.to_vec(),
                    revision: Revision::new(revision),
                })
            }
            ["delete", _] => {
                body = rest;
                None
            }
            _ => return Err("it has a line that says nothing known"),
        };
        puts.push(Put { path, entry });
    }
    Ok(puts)
}

/// The rest of the first line after this beginning, and what follows the line.
fn decode_line<'a>(file: &'a [u8], magic: &str) -> Result<(&'a str, &'a [u8]), &'static str> {
    let (line, rest) = split_line(file)?;
    let fields = line.strip_prefix(magic).and_then(|fields| fields.strip_prefix(' '));
    Ok((fields.ok_or("it is no file of this version")?, rest))
}

fn split_line(bytes: &[u8]) -> Result<(&str, &[u8]), &'static str> {
    let end = bytes
        .iter()
        .position(|&b| b == b'\n')
        .ok_or("a line in it has no end")?;
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| "a line in it is no text")?;
    Ok((line, &bytes[end + 1..]))
}

/// Writes a file beside its place, and puts it there when it is whole.
fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), CoordinationError> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}{NEW_SUFFIX}")));
    fondaco_durable::replace_file(&path, &new, bytes).map_err(failed("write", &path))
}

/// Removes a file, which may be gone already.
fn remove_durably(dir: &Path, name: &str) -> Result<(), CoordinationError> {
    let path = dir.join(name);
    let removed = fondaco_durable::remove_file(&path);
    removed.map(drop).map_err(failed("delete", &path))
}

/// Makes a directory and those above it that are missing.
fn create_durably(dir: &Path) -> Result<(), CoordinationError> {
    match dir.is_dir() {
        true => Ok(()),
        false => fondaco_durable::create_directory(dir).map_err(failed("create", dir)),
    }
}

fn failed(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> CoordinationError {
    move |source| CoordinationError::Io {
        action,
        file: file.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn delete(path: &str) -> Put {
        Put {
            path: path.parse().unwrap(),
            entry: None,
        }
    }

    fn opened(root: &Path) -> Result<Vec<Put>, CoordinationError> {
        let (_, entries) = Disk::open(root.to_owned())?;
        let put = |(path, entry)| Put {
            path,
            entry: Some(entry),
        };
        Ok(entries.into_iter().map(put).collect())
    }

    #[test]
    fn an_entry_cut_short_or_changed_is_an_error_and_never_data() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path().to_owned()).unwrap();
        disk.commit(&[put("a", b"some bytes", 7)]).unwrap();
        let file = dir.path().join("a").join(ENTRY_FILE);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert!(opened(dir.path()).is_err(), "{length} bytes");
        }
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(&file, changed).unwrap();
        assert!(opened(dir.path()).is_err());
    }

    #[test]
    fn a_write_that_a_crash_cut_off_leaves_the_old_entry() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path().to_owned()).unwrap();
        disk.commit(&[put("a", b"old", 1)]).unwrap();
        fs::write(dir.path().join("a/.entry.new"), b"half of the ne").unwrap();
        fs::write(dir.path().join(".transaction.new"), b"half of a tr").unwrap();
        assert_eq!(opened(dir.path()).unwrap(), [put("a", b"old", 1)]);
    }

    #[test]
    fn a_transaction_is_whole_after_a_crash_at_any_step() {
        let changes = [put("a", b"new", 5), delete("b"), put("c/d", b"made\n", 5)];
        for steps_done in 0..=changes.len() {
            let dir = tempfile::tempdir().unwrap();
            let (mut disk, _) = Disk::open(dir.path().to_owned()).unwrap();
            disk.commit(&[put("a", b"old", 1), put("b", b"old", 1)]).unwrap();
            // As a crash leaves it that comes after the file of the transaction and so many entries.
            write_durably(dir.path(), TRANSACTION_FILE, &encode_transaction(&changes)).unwrap();
            changes[..steps_done]
                .iter()
                .for_each(|change| disk.put(change).unwrap());
            let after = [changes[0].clone(), changes[2].clone()];
            assert_eq!(opened(dir.path()).unwrap(), after, "{steps_done} steps");
            assert!(!dir.path().join(TRANSACTION_FILE).exists());
        }
    }

    #[test]
    fn a_transaction_whose_entries_cannot_be_written_is_done_and_finished_later() {
        let dir = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(dir.path().to_owned()).unwrap();
        // A file where the directory of an entry must be.
        fs::write(dir.path().join("b"), b"").unwrap();
        disk.commit(&[put("a", b"1", 1), put("b", b"1", 1)]).unwrap();
        assert!(disk.commit(&[put("c", b"2", 2)]).is_err());
        fs::remove_file(dir.path().join("b")).unwrap();
        disk.commit(&[put("c", b"3", 3)]).unwrap();
        let all = [put("a", b"1", 1), put("b", b"1", 1), put("c", b"3", 3)];
        assert_eq!(opened(dir.path()).unwrap(), all);
    }

    #[test]
    fn a_transaction_file_cut_short_or_changed_is_an_error() {
        let whole = encode_transaction(&[put("a", b"1", 1), delete("b")]);
        assert_eq!(decode_transaction(&whole).unwrap().len(), 2);
        for length in 0..whole.len() {
            assert!(decode_transaction(&whole[..length]).is_err(), "{length} bytes");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(TRANSACTION_FILE), &whole[..whole.len() - 1]).unwrap();
        let error = opened(dir.path()).unwrap_err();
        assert!(matches!(error, CoordinationError::Corrupt { .. }), "{error}");
    }
}
