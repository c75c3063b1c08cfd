//! Changed chunks are made from those of the former version and patches, and fetched whole only where that fails.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fondaco_builder::{BuildOptions, IncrementOptions, Progress, ValueSelection, build, build_increment};
use fondaco_fetch::{CorruptFile, FetchError, FetchReport, FetchSource};
use fondaco_format::{ChunkCounts, ChunkPlan, MANIFEST_FILE, Manifest, Patch, PatchEntry, verify, write_patch};
use fondaco_model::slot_of_key;
use fondaco_storage::Location;
use tempfile::TempDir;

use crate::files::file_name;
use crate::place::{Place, Source, Tuning, control, hurried, relayed, several};

/// How a version is built.
#[derive(Clone, Copy)]
struct Shape {
    partitions: u32,
    chunk_bytes: u64,
}

const TWO_CHUNKS: Shape = Shape {
    partitions: 2,
    chunk_bytes: 1 << 30,
};

/// A version of the rows in a JSON file; with a base, of the difference to it, without the keys in another file.
fn built(shape: Shape, rows: &[(String, String)], base: Option<(&Path, &[String])>) -> Arc<Source> {
    let (input, output) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let line = |(key, value): &(String, String)| format!("{{\"k\":\"{key}\",\"v\":\"{value}\"}}\n");
    let lines: String = rows.iter().map(line).collect();
    let path = |name: &str| input.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("rows.jsonl"), lines).unwrap();
    let options = BuildOptions {
        value: ValueSelection::Column("v".to_owned()),
        allow_empty: true,
        memory_bytes: 64 << 20,
        threads: 2,
        chunk_bytes_target: shape.chunk_bytes,
        ..BuildOptions::new(
            "pymk".parse().unwrap(),
            shape.partitions.try_into().unwrap(),
            vec![path("rows.jsonl")],
            "k",
            Location::local(output.path()),
            input.path().to_owned(),
        )
    };
    match base {
        None => drop(build(&options, &Progress::new()).unwrap()),
        Some((base, deleted)) => {
            let lines: String = deleted.iter().map(|key| format!("{{\"k\":\"{key}\"}}\n")).collect();
            fs::write(path("deleted.jsonl"), lines).unwrap();
            let options = IncrementOptions {
                build: options,
                base: base.to_owned(),
                deletes: vec![path("deleted.jsonl")],
                has_final_values: false,
            };
            build_increment(&options, &Progress::new()).unwrap();
        }
    }
    Source::of(output)
}

fn row(n: u32, end: &str) -> (String, String) {
    (n.to_string(), format!("value {n} {}{end}", "x".repeat(1000)))
}

/// A version, and the one after it, with other values of every fiftieth key.
fn two_versions(shape: Shape) -> (Arc<Source>, Arc<Source>) {
    let rows: Vec<_> = (0..2000).map(|n| row(n, "")).collect();
    let base = built(shape, &rows, None);
    let changed: Vec<_> = (0..2000).step_by(50).map(|n| row(n, " changed")).collect();
    let next = built(shape, &changed, Some((base.dir.path(), &[])));
    (base, next)
}

/// A target with a version, and an empty target for the next one.
fn two_places(shape: Shape, base: &Arc<Source>) -> (Place, Place) {
    let (mut first, mut second) = (Place::new(), Place::new());
    (first.partitions, second.partitions) = (shape.partitions, shape.partitions);
    first.fetch(Arc::clone(base), &control(), &Tuning::default()).unwrap();
    second.siblings.push(first.version());
    (first, second)
}

fn fetched_bytes(report: &FetchReport) -> u64 {
    report.bytes_from.iter().map(|(_, bytes)| bytes).sum()
}

fn manifest(source: &Source) -> Manifest {
    Manifest::read(source.dir.path()).unwrap()
}

fn patch_bytes(source: &Source) -> u64 {
    manifest(source).patches.iter().map(|patch| patch.patch.bytes).sum()
}

/// Removes the patches, as nodes do not have them.
fn without_patches(source: &Source) {
    for patch in manifest(source).patches {
        fs::remove_file(source.dir.path().join(patch.patch.name)).unwrap();
    }
}

#[test]
fn only_the_patch_of_a_changed_chunk_travels() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let control = control();
    let report = second.fetch(Arc::clone(&next), &control, &Tuning::default()).unwrap();
    second.assert_whole();
    let manifest = manifest(&next);
    assert_eq!((manifest.patches.len(), report.rebuilt_chunks), (2, 2));
    assert_eq!(fetched_bytes(&report), patch_bytes(&next));
    assert_eq!(report.patch_bytes, patch_bytes(&next));
    assert_eq!(report.rebuilt_bytes, manifest.data_bytes());
    let progress = control.progress();
    assert_eq!(
        (progress.bytes_done, progress.bytes_total),
        (manifest.files_bytes(), manifest.files_bytes())
    );
    assert_eq!((progress.files_done, progress.files_total), (4, 4));
    let patches = fs::read_dir(second.version()).unwrap().map(Result::unwrap);
    assert_eq!(
        patches
            .filter(|file| file.path().extension().unwrap() == "patch")
            .count(),
        0
    );
}

#[test]
fn a_relay_is_not_asked_for_patches() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_, relay) = two_versions(TWO_CHUNKS);
    without_patches(&relay);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let sources = relayed(&next, &relay);
    // It would be waited for: for ten minutes.
    let report = second.fetch(sources, &control(), &Tuning::default()).unwrap();
    second.assert_whole();
    assert_eq!(report.rebuilt_chunks, 2);
    assert_eq!(fetched_bytes(&report), patch_bytes(&next));
}

#[test]
fn a_failing_source_of_patches_delays_no_chunk() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_, peer) = two_versions(TWO_CHUNKS);
    without_patches(&peer);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    next.failures.store(u32::MAX, Relaxed);
    let report = second
        .fetch(several([&next, &peer]), &hurried(), &Tuning::default())
        .unwrap();
    second.assert_whole();
    assert_eq!(report.rebuilt_chunks, 0);
    let failures = u32::MAX - next.failures.load(Relaxed);
    assert!(
        failures <= 2 * 2 + 4,
        "{failures}: two for each patch, and one for each file at most"
    );
}

#[test]
fn a_version_gets_its_partitions_one_after_the_other() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let second = second.wanting(&[1]);
    second.fetched(&next);
    assert_eq!(second.held(), [1]);
    let second = second.wanting(&[0]);
    let report = second.fetched(&next);
    assert_eq!(report.rebuilt_chunks, 1);
    second.assert_whole();
}

#[test]
fn a_damaged_former_chunk_leads_to_a_whole_fetch() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let whole = manifest(&next);
    for cut in [false, true] {
        let (first, second) = two_places(TWO_CHUNKS, &base);
        let path = first.version().join(file_name(&first.version(), "p00001", "data"));
        let mut damaged = fs::read(&path).unwrap();
        damaged[500_000] ^= 1;
        damaged.truncate(if cut { 400_000 } else { damaged.len() });
        fs::write(&path, &damaged).unwrap();
        let control = control();
        let report = second.fetch(Arc::clone(&next), &control, &Tuning::default()).unwrap();
        second.assert_whole();
        assert_eq!((report.rebuilt_chunks, report.corrupt.len()), (1, 0));
        assert!(fetched_bytes(&report) > whole.chunks[1].data.bytes);
        assert_eq!(control.progress().bytes_done, whole.files_bytes());
        assert!(fs::read(&path).unwrap() == damaged);
    }
}

#[test]
fn a_damaged_patch_is_named_and_the_chunk_fetched() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let file = manifest(&next).patches[0].patch.name.clone();
    let path = next.dir.path().join(&file);
    let mut damaged = fs::read(&path).unwrap();
    damaged[200] ^= 1;
    fs::write(&path, damaged).unwrap();
    let control = hurried();
    let report = second.fetch(Arc::clone(&next), &control, &Tuning::default()).unwrap();
    second.assert_whole();
    let location = next.name();
    assert_eq!(
        (report.rebuilt_chunks, report.corrupt),
        (1, vec![CorruptFile { location, file }])
    );
    assert_eq!(control.progress().bytes_done, manifest(&next).files_bytes());
}

#[test]
fn a_patch_that_makes_another_chunk_is_not_trusted() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let mut manifest = manifest(&next);
    let plan = |name: &str| {
        let path = next.dir.path().join(name);
        let patch = Patch::open(&path, fs::File::open(&path).unwrap()).unwrap();
        (patch.plan, patch.counts)
    };
    let entry = manifest.patches[0].clone();
    let of_others = plan(&manifest.patches[1].patch.name);
    let whole = fs::read(next.dir.path().join(&manifest.chunks[1].data.name)).unwrap();
    for ((plan, counts), changes) in [
        (plan(&entry.patch.name), &[][..]),
        (of_others, &[]),
        (plan(&entry.patch.name), &whole[64..]),
    ] {
        let (mut patch, bytes) = write_patch(entry.base.checksum, &plan, counts, changes, Vec::new()).unwrap();
        patch.name = fondaco_format::chunk_file_name(entry.partition, entry.chunk, patch.checksum, "patch");
        fs::write(next.dir.path().join(&patch.name), bytes).unwrap();
        manifest.patches[0].patch = patch;
        fs::write(next.dir.path().join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
        let (_first, second) = two_places(TWO_CHUNKS, &base);
        let report = second.fetched(&next);
        second.assert_whole();
        assert_eq!((report.rebuilt_chunks, report.corrupt), (1, vec![]));
    }
}

#[test]
fn sources_without_patches_and_targets_without_versions_work() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let peer = two_versions(TWO_CHUNKS).1;
    without_patches(&peer);
    let report = second
        .fetch(several([&peer, &next]), &control(), &Tuning::default())
        .unwrap();
    second.assert_whole();
    assert_eq!(report.rebuilt_chunks, 2, "the next source has the patches");

    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let report = second.fetched(&peer);
    second.assert_whole();
    assert_eq!(
        (report.rebuilt_chunks, fetched_bytes(&report)),
        (0, manifest(&peer).files_bytes())
    );

    let empty = Place::new();
    let report = empty.fetched(&next);
    empty.assert_whole();
    assert_eq!(
        (report.rebuilt_chunks, fetched_bytes(&report)),
        (0, manifest(&next).files_bytes())
    );
}

#[test]
fn an_interrupted_rebuild_leaves_nothing_half_applied() {
    let (base, next) = two_versions(TWO_CHUNKS);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let (slow, handle) = (Tuning::default(), Arc::new(control()));
    slow.rate.store(500_000, Relaxed);
    let watched = Arc::clone(&handle);
    let watcher = std::thread::spawn(move || {
        while watched.progress().bytes_done < 300_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        watched.interrupt();
    });
    let error = second.fetch(Arc::clone(&next), &handle, &slow).unwrap_err();
    watcher.join().unwrap();
    assert!(matches!(error, FetchError::Interrupted), "{error}");
    assert!(!second.version().exists());
    let names = fs::read_dir(second.fetching())
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.ends_with(".data.part")), "{names:?}");
    assert!(names.iter().all(|name| name.ends_with(".part")), "{names:?}");

    // A kill leaves any beginning of these files: of the data, of its index, of the patch.
    for (file, bytes) in [(".data.part", 100_000), (".patch.part", 100)] {
        let name = names.iter().find(|name| name.ends_with(file)).unwrap();
        let opened = fs::File::options()
            .write(true)
            .open(second.fetching().join(name))
            .unwrap();
        opened.set_len(bytes).unwrap();
    }
    let index = &manifest(&next).chunks[0].index.name;
    fs::write(second.fetching().join(format!("{index}.part")), "torn").unwrap();
    let report = second.fetched(&next);
    second.assert_whole();
    assert_eq!(report.rebuilt_chunks, 2);
    assert!(fetched_bytes(&report) < patch_bytes(&next), "the patches were there");
}

/// As in differences of earlier releases, whose indexes were sized for the averages of a partition.
#[test]
fn an_index_is_made_where_only_its_size_changed() {
    let rows: Vec<_> = (0..2000).map(|n| row(n, "")).collect();
    let base = built(TWO_CHUNKS, &rows, None);
    let next = TempDir::new().unwrap();
    let mut manifest = manifest(&base);
    let chunk = manifest.chunks[0].clone();
    let plan = ChunkPlan {
        partition: chunk.partition,
        chunk: 0,
        chunk_count: 1,
    };
    let counts = ChunkCounts {
        records: chunk.records * 3,
        bytes: chunk.data.bytes * 3,
    };
    let (patch, bytes) = write_patch(chunk.data.checksum, &plan, counts, &[][..], Vec::new()).unwrap();
    let opened = Patch::open(Path::new("patch"), &bytes[..]).unwrap();
    let mut writer = opened.begin(Vec::new());
    let path = base.dir.path().join(&chunk.data.name);
    opened
        .apply((&path, &mut fs::File::open(&path).unwrap()), &mut writer)
        .unwrap();
    let (entry, _, index) = writer.finish(Vec::new()).unwrap();
    assert!(entry.data == chunk.data && entry.index.bytes > chunk.index.bytes);
    let files = manifest.files().filter(|file| file.name != chunk.index.name);
    for file in files {
        fs::copy(base.dir.path().join(&file.name), next.path().join(&file.name)).unwrap();
    }
    fs::write(next.path().join(&entry.index.name), index).unwrap();
    fs::write(next.path().join(&patch.name), bytes).unwrap();
    manifest.patches = vec![PatchEntry {
        partition: chunk.partition,
        chunk: 0,
        base: chunk.data,
        patch,
    }];
    manifest.chunks[0] = entry;
    fs::write(next.path().join(MANIFEST_FILE), manifest.to_bytes()).unwrap();
    let next = Source::of(next);
    let (_first, second) = two_places(TWO_CHUNKS, &base);
    let report = second.fetched(&next);
    second.assert_whole();
    assert_eq!(report.rebuilt_chunks, 1);
    assert_eq!(fetched_bytes(&report), patch_bytes(&next));
}

/// The goal of incremental pushes: for 5 % of the records changed, whether in few partitions or everywhere, nodes fetch
/// at most a tenth of what a full push takes.
#[test]
fn a_node_fetches_a_tenth_for_a_twentieth_changed() {
    const RECORDS: u32 = 20_000;
    let shape = Shape {
        partitions: 64,
        chunk_bytes: 1 << 30,
    };
    // Text of 64 characters that are hardly compressible.
    let value = |n: u32, round: u64| -> String {
        let mut state = u64::from(n) << 8 | round;
        let character = |_| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            char::from(digits[(state >> 58) as usize])
        };
        (0..1024).map(character).collect()
    };
    let rows: Vec<_> = (0..RECORDS).map(|n| (format!("key{n}"), value(n, 0))).collect();
    let base = built(shape, &rows, None);
    let full_bytes = manifest(&base).files_bytes();
    let in_few = |key: &str| slot_of_key(&"pymk".parse().unwrap(), key.as_bytes()).get() < 16384 / 64 * 3;
    let few: Vec<u32> = (0..RECORDS).filter(|n| in_few(&format!("key{n}"))).collect();
    let spread: Vec<u32> = (0..RECORDS).step_by(20).collect();
    for changed in [few, spread] {
        let is_twentieth = (RECORDS / 25..=RECORDS / 18).contains(&(changed.len() as u32));
        assert!(is_twentieth, "{}", changed.len());
        let set: Vec<_> = changed.iter().map(|&n| (format!("key{n}"), value(n, 1))).collect();
        let next = built(shape, &set, Some((base.dir.path(), &[])));
        let (_first, second) = two_places(shape, &base);
        let report = second.fetched(&next);
        assert_eq!(verify(&second.version()).unwrap().records, u64::from(RECORDS));
        let manifest_bytes = fs::metadata(next.dir.path().join(MANIFEST_FILE)).unwrap().len();
        let bytes = fetched_bytes(&report) + manifest_bytes;
        println!(
            "{} of {RECORDS} records changed: {bytes} bytes fetched, {} for a full push: {:.1} %; {} chunks made",
            changed.len(),
            full_bytes + manifest_bytes,
            bytes as f64 * 100.0 / (full_bytes + manifest_bytes) as f64,
            report.rebuilt_chunks
        );
        assert!(bytes * 10 <= full_bytes, "{bytes} of {full_bytes}");
    }
}
