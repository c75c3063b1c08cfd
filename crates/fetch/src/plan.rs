//! The plan of a fetch, made before the first byte is fetched.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fondaco_format::{Checksum, ChunkEntry, FileEntry, FilePlace, FormatError, MANIFEST_FILE, Manifest};
use fondaco_model::PartitionSet;

use crate::batch::Batch;
use crate::error::FetchError;
use crate::file::part_name;
use crate::on_demand::OnDemand;
use crate::pace::FetchControl;
use crate::pacer::Pacer;
use crate::partial::{Demand, OnDemandCounts, PartialCopy};
use crate::rebuild::{Rebuild, Rebuilds};
use crate::report::{FetchReport, Findings};
use crate::siblings::Siblings;
use crate::source::{FetchSource, PageCache, SourceError};
use crate::sources::Sources;
use crate::space::{self, Need};
use crate::{FetchTarget, FetchTuning, discard_leftovers};

/// The largest manifest that is read, in bytes: a million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// A manifest that a fetch may use.
struct Found {
    manifest: Manifest,
    /// The checksum that identifies the version.
    identity: Checksum,
    bytes: Vec<u8>,
}

/// A fetch that is possible.
pub struct FetchPlan {
    found: Found,
    /// The wanted files: all but indexes, then indexes.
    data: Vec<FileEntry>,
    indexes: Vec<FileEntry>,
    /// Whether the version already has its directory.
    adds: bool,
    /// Whether the manifest must be written at the end: into a new directory, or in place of a damaged one.
    brings_manifest: bool,
    needed_bytes: u64,
    /// The source whose files need not be copied, as far as this is known beforehand.
    shareable: Option<usize>,
    siblings: Siblings,
    /// The number of the source that is the relay of a file, by the file's name.
    relays: HashMap<String, usize>,
    rebuilds: Rebuilds,
    /// The copies that look-ups share, by the names of their files.
    partials: HashMap<String, Arc<PartialCopy>>,
}

impl FetchPlan {
    /// Reads the manifest, from the version's directory if it has an intact one, else from the first source with the
    /// right one, and checks that the version fits on the disk. Changes nothing.
    ///
    /// # Errors
    /// No readable manifest; another version, store or partition count; too little space. If no source has the
    /// manifest, the first source's error.
    pub fn new(sources: &Sources, target: &FetchTarget<'_>) -> Result<Self, FetchError> {
        let own = own_manifest(target)?;
        let brings_manifest = own.is_none();
        let found = match own {
            Some(own) => own,
            None => manifest_of(sources, target)?,
        };
        let wanted = |partition| target.wanted.is_none_or(|wanted| wanted.contains(partition));
        let chunks = || found.manifest.chunks.iter().filter(|chunk| wanted(chunk.partition));
        let others = chunks().flat_map(ChunkEntry::files_but_index);
        let mut data: Vec<FileEntry> = others.chain(&found.manifest.dictionary).cloned().collect();
        let mut indexes: Vec<FileEntry> = chunks().map(|chunk| chunk.index.clone()).collect();
        let relays: HashMap<String, usize> = chunks()
            .filter_map(|chunk| Some((chunk, sources.relay_of(chunk.partition)?)))
            .flat_map(|(chunk, relay)| chunk.files().map(move |file| (file.name.clone(), relay)))
            .collect();
        // Other nodes wait for the files that this one fetches itself.
        data.sort_by_key(|file| relays.contains_key(&file.name));
        indexes.sort_by_key(|file| relays.contains_key(&file.name));
        let device = space::device_of(target.version_dir)?;
        let bases = found.manifest.patches.iter().map(|patch| &patch.base);
        let named = data.iter().chain(&indexes).chain(bases);
        let siblings = Siblings::find(target.siblings, named, device);
        let mut plan = Self {
            rebuilds: Rebuilds::find(&found.manifest, chunks(), &siblings),
            siblings,
            data,
            indexes,
            found,
            adds: target.version_dir.is_dir(),
            brings_manifest,
            needed_bytes: 0,
            shareable: None,
            relays,
            partials: HashMap::new(),
        };
        let dir = plan.dir(target);
        plan.shareable = space::shareable(sources, dir);
        let need = plan.need(dir, plan.shareable.is_some())?;
        plan.needed_bytes = need.outstanding_bytes();
        space::check(&need, target.reserve_bytes)?;
        Ok(plan)
    }

    /// The manifest of the version.
    pub fn manifest(&self) -> &Manifest {
        &self.found.manifest
    }

    /// The checksum that identifies this version: see [`Manifest::identity`].
    pub fn manifest_checksum(&self) -> Checksum {
        self.found.identity
    }

    /// The length of all wanted files, in bytes.
    pub fn files_bytes(&self) -> u64 {
        self.files().map(|file| file.bytes).sum()
    }

    /// How many bytes it needs on the disk besides the files that are there.
    pub fn needed_bytes(&self) -> u64 {
        self.needed_bytes
    }

    /// Whether files will be linked or cloned instead of copied, as far as this is known beforehand.
    pub fn links(&self) -> bool {
        self.shareable.is_some()
    }

    /// Creates the files of these partitions, so that the version can be opened [while it is fetched](OnDemand). Files that are
    /// here, or that another version has, are used as they are.
    ///
    /// # Errors
    /// The files cannot be created.
    pub fn on_demand(
        &mut self,
        sources: &Arc<Sources>,
        target: &FetchTarget<'_>,
        partitions: &PartitionSet,
        counts: &Arc<OnDemandCounts>,
    ) -> Result<OnDemand, FetchError> {
        let dir = self.dir(target).to_owned();
        if !self.adds {
            fondaco_durable::create_directory(&dir).map_err(FetchError::io("create", &dir))?;
        }
        let (mut places, mut partials) = (HashMap::new(), HashMap::new());
        let manifest = &self.found.manifest;
        let chunks = manifest.chunks.iter();
        let chunks = chunks.filter(|chunk| partitions.contains(chunk.partition));
        for file in chunks.flat_map(ChunkEntry::files).chain(&manifest.dictionary) {
            let found = fs::symlink_metadata(dir.join(&file.name));
            if found.is_ok_and(|found| found.is_file() && found.len() == file.bytes) {
                continue;
            }
            if let Some(sibling) = self.sibling_of(file) {
                places.insert(file.name.clone(), FilePlace::Whole(sibling.to_owned()));
                continue;
            }
            let demand = Demand {
                sources: Arc::clone(sources),
                counts: Arc::clone(counts),
            };
            let partial = PartialCopy::open(dir.join(part_name(&file.name)), file, Some(demand))?;
            let partial = Arc::new(partial);
            places.insert(file.name.clone(), FilePlace::Partial(Arc::clone(&partial) as _));
            partials.insert(file.name.clone(), partial);
        }
        let dictionary = manifest.dictionary.as_ref();
        let is_index = |name: &String| manifest.chunks.iter().any(|chunk| chunk.index.name == *name);
        let reads_index = partials.keys().any(is_index);
        let on_demand = OnDemand {
            dir,
            manifest: manifest.clone(),
            identity: self.found.identity,
            unread: partials.values().next().filter(|_| !reads_index).cloned(),
            dictionary: dictionary.and_then(|dictionary| partials.get(&dictionary.name).cloned()),
            places,
        };
        self.partials = partials;
        Ok(on_demand)
    }

    /// Fetches. Returns when all wanted files are complete, verified, durable and in place.
    ///
    /// # Errors
    /// The first error. The files fetched so far stay, for another attempt or for the caller to delete: a fetching
    /// directory as a whole, the leftovers in a version's directory with
    /// [`discard_leftovers`](crate::discard_leftovers).
    pub fn run(
        &self,
        sources: &Sources,
        target: &FetchTarget<'_>,
        cache: PageCache,
        control: &FetchControl,
        tuning: &dyn FetchTuning,
    ) -> Result<FetchReport, FetchError> {
        let dir = self.dir(target);
        let reservation = space::reserve(self.need(dir, self.links())?, target.reserve_bytes)?;
        if !self.adds {
            fondaco_durable::create_directory(dir).map_err(FetchError::io("create", dir))?;
        }
        control.begin(self.files().count() as u64, self.files_bytes());
        let mut pacer = Pacer::new(control, tuning);
        let findings = Findings::default();
        let batch = Batch::new(self, sources, dir, target.reserve_bytes, control, &findings);
        let mut steps = [(&self.data, cache), (&self.indexes, PageCache::Keep)];
        if !self.partials.is_empty() && self.rebuilds.patches().next().is_none() {
            // Look-ups that read the data from a source should not read the indexes from there, too.
            steps.reverse();
        }
        for (files, cache) in steps {
            batch.run(files, cache, &mut pacer)?;
        }
        control.check()?;
        // Leftovers of earlier attempts, for files that were got in another way or are not wanted any more.
        discard_leftovers(dir)?;
        // Files that are added to a version must be durable too, even if nothing else follows.
        sync_dir(dir)?;
        if self.brings_manifest {
            self.write_manifest(dir)?;
        }
        if !self.adds {
            fondaco_durable::rename(dir, target.version_dir).map_err(FetchError::io("rename", dir))?;
        }
        drop((batch, reservation));
        Ok(findings.report(sources))
    }

    /// The copy of a file that look-ups share, if there is one.
    pub(crate) fn partial_of(&self, file: &FileEntry) -> Option<&Arc<PartialCopy>> {
        self.partials.get(&file.name)
    }

    pub(crate) fn shareable(&self) -> Option<usize> {
        self.shareable
    }

    /// The file of another version of the store that this file can be linked to.
    pub(crate) fn sibling_of(&self, file: &FileEntry) -> Option<&Path> {
        self.siblings.of(file)
    }

    /// The number of the source that fetches this file at the same time, and is to be waited for.
    pub(crate) fn relay_of(&self, file: &FileEntry) -> Option<usize> {
        self.relays.get(&file.name).copied()
    }

    /// How this file is made from that of another version of the store.
    pub(crate) fn rebuild_of(&self, file: &FileEntry) -> Option<&Rebuild> {
        self.rebuilds.of(file)
    }

    /// The space that the files need in a directory, with the patches: none if they are links or clones.
    pub(crate) fn need(&self, dir: &Path, links: bool) -> Result<Need, FetchError> {
        let copied = |file: &&FileEntry| !links && self.sibling_of(file).is_none();
        let patches = self.rebuilds.patches().filter(|_| !links);
        Need::new(dir, self.files().filter(copied).chain(patches))
    }

    fn files(&self) -> impl Iterator<Item = &FileEntry> {
        self.data.iter().chain(&self.indexes)
    }

    fn dir<'t>(&self, target: &FetchTarget<'t>) -> &'t Path {
        match self.adds {
            true => target.version_dir,
            false => target.fetching_dir,
        }
    }

    /// Writes the manifest beside the files.
    fn write_manifest(&self, dir: &Path) -> Result<(), FetchError> {
        let (manifest, part) = (dir.join(MANIFEST_FILE), dir.join("manifest.json.part"));
        let written = fondaco_durable::replace_file(&manifest, &part, &self.found.bytes);
        written.map_err(FetchError::io("write", &manifest))
    }
}

/// The manifest in the version's own directory; `None` if it is missing or damaged.
fn own_manifest(target: &FetchTarget<'_>) -> Result<Option<Found>, FetchError> {
    let path = target.version_dir.join(MANIFEST_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FetchError::io("read", path)(e)),
    };
    let other = |expected, found| FetchError::OtherVersion {
        path: target.version_dir.to_owned(),
        expected,
        found,
    };
    match read(bytes, target.version_dir.display().to_string(), target, other) {
        Err(FetchError::Manifest {
            source: FormatError::CorruptManifest { .. },
            ..
        }) => Ok(None),
        found => found.map(Some),
    }
}

/// The manifest of the first source with the right one.
fn manifest_of(sources: &Sources, target: &FetchTarget<'_>) -> Result<Found, FetchError> {
    let mut first_error = None;
    for (number, source) in sources.iter().enumerate() {
        let began = Instant::now();
        match manifest_from(source, target) {
            Ok(found) => return Ok(found),
            Err(error) => {
                sources.took(number, began.elapsed());
                tracing::debug!(source = %source.name(), %error, "no manifest from this source");
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or(FetchError::NoSource))
}

fn manifest_from(source: &dyn FetchSource, target: &FetchTarget<'_>) -> Result<Found, FetchError> {
    let location = source.name();
    let bytes = match source.read_whole(MANIFEST_FILE, MANIFEST_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(SourceError::Missing) => {
            let path = location.clone().into();
            let source = FormatError::NoManifest { path };
            return Err(FetchError::Manifest { location, source });
        }
        Err(source) => {
            let file = MANIFEST_FILE.to_owned();
            return Err(FetchError::Source { file, location, source });
        }
    };
    let changed = |expected, found| FetchError::SourceChanged {
        location: location.clone(),
        expected,
        found,
    };
    read(bytes, location.clone(), target, changed)
}

/// The manifest, if it belongs to the version that is fetched, which means that it has the expected identity. Two
/// manifests of one version may differ in the parts that say when it was built.
fn read(
    bytes: Vec<u8>,
    location: String,
    target: &FetchTarget<'_>,
    other: impl FnOnce(Checksum, Checksum) -> FetchError,
) -> Result<Found, FetchError> {
    let (manifest, identity) = match Manifest::identified(&bytes) {
        Ok(read) => read,
        Err(source) => return Err(FetchError::Manifest { location, source }),
    };
    if let Some(expected) = target.manifest_checksum.filter(|expected| *expected != identity) {
        return Err(other(expected, identity));
    }
    if manifest.store != *target.store {
        return Err(FetchError::WrongStore {
            location,
            expected: target.store.clone(),
            found: manifest.store,
        });
    }
    if manifest.partitions != target.partitions {
        return Err(FetchError::WrongPartitions {
            location,
            expected: target.partitions,
            found: manifest.partitions,
        });
    }
    Ok(Found {
        manifest,
        identity,
        bytes,
    })
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), FetchError> {
    fondaco_durable::sync_directory(dir).map_err(FetchError::io("write back", dir))
}
