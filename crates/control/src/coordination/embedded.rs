//! Coordination of one process, in one directory.
//!
//! The entry `a/b` is the file `a/b/.entry`: no name begins with a dot, so that it is never taken for
//! a child. A file is a line `fondaco-entry 1 REVISION CHECKSUM`, and the entry's bytes after it. It is
//! written beside its place, made durable, renamed, and the renaming made durable before the write is
//! acknowledged: after a crash the old or the new entry is there, whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fondaco_format::Checksum;

use super::{Coordination, CoordinationError, ENTRY_BYTES_MAX, Entry, EntryPath, Revision};

const ENTRY_FILE: &str = ".entry";
const NEW_FILE: &str = ".entry.new";
const MAGIC: &str = "fondaco-entry 1";

/// Coordination in a directory, which belongs to this process alone.
pub struct EmbeddedCoordination {
    root: PathBuf,
    /// Held from comparing the revision until the write is durable.
    writing: Mutex<()>,
}

impl EmbeddedCoordination {
    /// Opens the tree in a directory, made if need be. The caller holds the lock on it.
    ///
    /// # Errors
    /// A directory that cannot be made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, CoordinationError> {
        let root = root.into();
        create_durably(&root)?;
        Ok(Self {
            root,
            writing: Mutex::new(()),
        })
    }

    fn dir_of(&self, path: &EntryPath) -> PathBuf {
        self.root.join(&path.0)
    }

    fn check_revision(&self, path: &EntryPath, expected: Option<Revision>) -> Result<(), CoordinationError> {
        match self.read(path)?.map(|entry| entry.revision) {
            found if found == expected => Ok(()),
            _ => Err(CoordinationError::Conflict { path: path.clone() }),
        }
    }
}

impl Coordination for EmbeddedCoordination {
    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError> {
        let file = self.dir_of(path).join(ENTRY_FILE);
        match fs::read(&file) {
            Ok(bytes) => decode(&bytes)
                .map(Some)
                .map_err(|reason| CoordinationError::Corrupt { file, reason }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("read", &file)(e)),
        }
    }

    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError> {
        if bytes.len() > ENTRY_BYTES_MAX {
            let path = path.clone();
            let bytes = bytes.len();
            return Err(CoordinationError::TooLong { path, bytes });
        }
        // The lock guards files and no memory: whoever panicked left nothing half done in here.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_revision(path, expected)?;
        let revision = expected.map_or(Revision::FIRST, Revision::next);
        let dir = self.dir_of(path);
        create_durably(&dir)?;
        let (file, new) = (dir.join(ENTRY_FILE), dir.join(NEW_FILE));
        write_durably(&new, &encode(bytes, revision))?;
        fs::rename(&new, &file).map_err(failed("rename", &new))?;
        sync_dir(&dir)?;
        Ok(revision)
    }

    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_revision(path, Some(expected))?;
        let dir = self.dir_of(path);
        let file = dir.join(ENTRY_FILE);
        fs::remove_file(&file).map_err(failed("delete", &file))?;
        sync_dir(&dir)?;
        // What is left is an empty directory, which means nothing; it stays if entries are below it.
        let _ = fs::remove_dir(&dir);
        Ok(())
    }

    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError> {
        let dir = self.dir_of(path);
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed("list", &dir)(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("list", &dir))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if EntryPath::is_name(&name) && holds_entries(&entry.path()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Whether there is an entry in or below a directory.
fn holds_entries(dir: &Path) -> bool {
    dir.join(ENTRY_FILE).exists()
        || fs::read_dir(dir).is_ok_and(|mut below| {
            below.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir() && holds_entries(&entry.path())))
        })
}

fn encode(bytes: &[u8], revision: Revision) -> Vec<u8> {
    let mut file = format!("{MAGIC} {} {}\n", revision.0, Checksum::of(bytes)).into_bytes();
    file.extend_from_slice(bytes);
    file
}

fn decode(file: &[u8]) -> Result<Entry, &'static str> {
    let end = file.iter().position(|&b| b == b'\n').ok_or("it has no first line")?;
    let line = std::str::from_utf8(&file[..end]).map_err(|_| "its first line is no text")?;
    let fields = line.strip_prefix(MAGIC).ok_or("it is no entry of this version")?;
    let (revision, checksum) = fields
        .strip_prefix(' ')
        .and_then(|fields| fields.split_once(' '))
        .ok_or("its first line has too few fields")?;
    let revision = revision.parse().map_err(|_| "its revision is no number")?;
    let bytes = file[end + 1..].to_vec();
    if checksum.parse() != Ok(Checksum::of(&bytes)) {
        return Err("its checksum does not match");
    }
    Ok(Entry {
        bytes,
        revision: Revision(revision),
    })
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), CoordinationError> {
    let mut file = File::create(path).map_err(failed("create", path))?;
    file.write_all(bytes).map_err(failed("write", path))?;
    file.sync_all().map_err(failed("write back", path))
}

/// Makes a directory and those above it that are missing, durably.
fn create_durably(dir: &Path) -> Result<(), CoordinationError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_durably(parent)?;
    }
    match fs::create_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create", dir)(e)),
        _ => {}
    }
    match dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_dir(parent),
        None => sync_dir(Path::new(".")),
    }
}

fn sync_dir(dir: &Path) -> Result<(), CoordinationError> {
    let opened = File::open(dir).map_err(failed("open", dir))?;
    opened.sync_all().map_err(failed("write back", dir))
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::new(text.split('/')).unwrap()
    }

    #[test]
    fn a_write_over_an_unseen_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let tree = EmbeddedCoordination::open(dir.path()).unwrap();
        let first = tree.write(&path("a"), b"1", None).unwrap();
        let second = tree.write(&path("a"), b"2", Some(first)).unwrap();
        for stale in [None, Some(first)] {
            let error = tree.write(&path("a"), b"3", stale).unwrap_err();
            assert!(matches!(error, CoordinationError::Conflict { .. }), "{error}");
        }
        assert!(tree.delete(&path("a"), first).is_err());
        let entry = tree.read(&path("a")).unwrap().unwrap();
        assert_eq!((entry.bytes, entry.revision), (b"2".to_vec(), second));
    }

    #[test]
    fn an_entry_cut_short_or_changed_is_an_error_and_never_data() {
        let dir = tempfile::tempdir().unwrap();
        let tree = EmbeddedCoordination::open(dir.path()).unwrap();
        tree.write(&path("a"), b"some bytes", None).unwrap();
        let file = dir.path().join("a").join(ENTRY_FILE);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert!(tree.read(&path("a")).is_err(), "{length} bytes");
        }
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(&file, changed).unwrap();
        assert!(tree.read(&path("a")).is_err());
    }

    #[test]
    fn a_write_that_a_crash_cut_off_leaves_the_old_entry() {
        let dir = tempfile::tempdir().unwrap();
        let tree = EmbeddedCoordination::open(dir.path()).unwrap();
        let revision = tree.write(&path("a"), b"old", None).unwrap();
        fs::write(dir.path().join("a").join(NEW_FILE), b"half of the ne").unwrap();
        assert_eq!(tree.read(&path("a")).unwrap().unwrap().bytes, b"old");
        tree.write(&path("a"), b"new", Some(revision)).unwrap();
        assert_eq!(tree.read(&path("a")).unwrap().unwrap().bytes, b"new");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(String, Vec<u8>),
        Delete(String),
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let name = "[ab]/[ab](/[ab])?";
        let step = prop_oneof![
            4 => (name, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(n, b)| Step::Write(n, b)),
            2 => name.prop_map(Step::Delete),
            1 => Just(Step::Reopen),
        ];
        prop::collection::vec(step, 0..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_behaves_as_a_map_does_whenever_it_is_opened_again(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let mut tree = EmbeddedCoordination::open(dir.path()).unwrap();
            let mut map: BTreeMap<String, (Vec<u8>, Revision)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Write(name, bytes) => {
                        let before = map.get(&name).map(|(_, revision)| *revision);
                        let revision = tree.write(&path(&name), &bytes, before).unwrap();
                        map.insert(name, (bytes, revision));
                    }
                    Step::Delete(name) => {
                        let before = map.remove(&name).map_or(Revision::FIRST, |(_, revision)| revision);
                        let existed = tree.read(&path(&name)).unwrap().is_some();
                        prop_assert_eq!(tree.delete(&path(&name), before).is_ok(), existed);
                    }
                    Step::Reopen => tree = EmbeddedCoordination::open(dir.path()).unwrap(),
                }
                for top in ["a", "b"] {
                    let mut expected: Vec<_> = map
                        .keys()
                        .filter_map(|name| name.strip_prefix(top)?.strip_prefix('/')?.split('/').next())
                        .map(str::to_owned)
                        .collect();
                    expected.dedup();
                    prop_assert_eq!(tree.children(&path(top)).unwrap(), expected);
                }
            }
            for (name, (bytes, revision)) in map {
                prop_assert_eq!(tree.read(&path(&name)).unwrap(), Some(Entry { bytes, revision }));
            }
        }
    }
}
