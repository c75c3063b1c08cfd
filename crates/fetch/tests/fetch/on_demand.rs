//! Versions that are open while they are fetched.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fondaco_fetch::{FetchError, FetchPlan, OnDemand, OnDemandCounts, PageCache, Sources};
use fondaco_format::Version;
use fondaco_model::PartitionSet;
use fondaco_testing::SmallDisk;

use crate::place::{Place, Source, Tuning, control, several};

/// A fetch that has not begun, and the version that it fetches.
struct Fetch<'a> {
    place: &'a Place,
    sources: Arc<Sources>,
    plan: FetchPlan,
    on_demand: OnDemand,
    counts: Arc<OnDemandCounts>,
}

impl<'a> Fetch<'a> {
    fn try_new(place: &'a Place, sources: Sources) -> Result<Self, FetchError> {
        let (sources, counts) = (Arc::new(sources), Arc::<OnDemandCounts>::default());
        let (fetching, version) = (place.fetching(), place.version());
        let target = place.target(&fetching, &version);
        let mut plan = FetchPlan::new(&sources, &target)?;
        let partitions: PartitionSet = plan.manifest().partitions.partitions().collect();
        let on_demand = plan.on_demand(&sources, &target, &partitions, &counts)?;
        Ok(Self {
            place,
            sources,
            plan,
            on_demand,
            counts,
        })
    }

    fn new(place: &'a Place, sources: Sources) -> Self {
        Self::try_new(place, sources).unwrap()
    }

    fn open(&self) -> Version {
        let version = self.on_demand.open().unwrap();
        assert!(version.is_partial() && version.not_held().count() == 0);
        version
    }

    fn run(&self) {
        let (fetching, version) = (self.place.fetching(), self.place.version());
        let target = self.place.target(&fetching, &version);
        let run = self.plan.run(
            &self.sources,
            &target,
            PageCache::DropBehind,
            &control(),
            &Tuning::default(),
        );
        run.unwrap();
        self.place.assert_whole();
    }
}

/// Looks a key up: true if its value is right, false if there is an error.
fn is_right(version: &Version, key: u32) -> bool {
    match version.get_owned(key.to_string().as_bytes()) {
        Ok(Some(value)) => {
            assert!(
                value.starts_with(format!("value {key} x").as_bytes()),
                "{key}: {value:?}"
            );
            true
        }
        Ok(None) => panic!("key {key} is reported as absent"),
        Err(_) => false,
    }
}

#[test]
fn look_ups_read_what_they_need_and_the_fetch_takes_it_over() {
    let (source, place) = (Source::new(false), Place::new());
    let fetch = Fetch::new(&place, several([&source]));
    let version = fetch.open();
    let headers = source.ranges_read.load(Relaxed);
    assert_eq!(headers, 2, "one range of each index");
    assert!(is_right(&version, 7));
    assert_eq!(source.ranges_read.load(Relaxed), headers + 1, "one range of the data");
    for _ in 0..3 {
        assert!(is_right(&version, 7));
    }
    assert_eq!(version.get_owned(b"absent").unwrap(), None);
    assert!(source.ranges_read.load(Relaxed) <= headers + 2 && source.bytes_read.load(Relaxed) == 0);
    // Several threads want the same pieces: each is read once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2000).for_each(|key| assert!(is_right(&version, key))));
        }
    });
    let pieces = fetch.counts.reads.load(Relaxed);
    assert!(pieces <= 40, "{pieces} reads of some 2 MB");
    assert_eq!(fetch.counts.failures.load(Relaxed), 0);
    fetch.run();
    assert_eq!(source.bytes_read.load(Relaxed), 0, "the fetch has read nothing again");
    assert!(is_right(&version, 1999), "who has it open goes on reading");
}

#[test]
fn look_ups_are_right_while_the_fetch_runs() {
    let (source, place) = (Source::new(false), Place::new());
    let fetch = Fetch::new(&place, several([&source]));
    let version = fetch.open();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let version = &version;
            scope.spawn(move || (0..2000).for_each(|at| assert!(is_right(version, (at * 7 + thread * 600) % 2000))));
        }
        fetch.run();
    });
}

#[test]
fn corrupt_bytes_are_refused_and_read_from_another_source() {
    let (bad, place) = (Source::new(false), Place::new());
    bad.corrupt(&bad.data_file());
    let fetch = Fetch::new(&place, several([&bad]));
    let version = fetch.open();
    let right = (0..2000).filter(|&key| is_right(&version, key)).count();
    assert!(
        (1500..2000).contains(&right),
        "only the keys of a piece are refused: {right} are right"
    );
    assert!(
        version.damaged().is_empty(),
        "the disk is not damaged: {:?}",
        version.damaged()
    );
    let good = Source::new(false);
    let fetch = Fetch::new(&place, several([&bad, &good]));
    let version = fetch.open();
    assert!((0..2000).all(|key| is_right(&version, key)));
    fetch.run();
}

#[test]
fn another_process_goes_on_with_the_verified_pieces() {
    let (source, place) = (Source::new(false), Place::new());
    let fetch = Fetch::new(&place, several([&source]));
    let version = fetch.open();
    let known: Vec<u32> = (0..20).collect();
    assert!(known.iter().all(|&key| is_right(&version, key)));
    drop((version, fetch));
    let read = source.ranges_read.load(Relaxed);
    let fetch = Fetch::new(&place, several([&source]));
    let version = fetch.open();
    assert!(known.iter().all(|&key| is_right(&version, key)));
    assert_eq!(source.ranges_read.load(Relaxed), read, "all of it is on the disk");
    drop((version, fetch));
    // Power was lost, and one of the pieces is not what was written.
    let part = place.fetching().join(format!("{}.part", source.data_file()));
    let part = fs::File::options().read(true).write(true).open(part).unwrap();
    let is_value = |at: &u64| {
        let mut bytes = [0; 500];
        part.read_exact_at(&mut bytes, *at).unwrap();
        bytes == [b'x'; 500]
    };
    let at = (0..part.metadata().unwrap().len() - 500).step_by(500).find(is_value);
    part.write_all_at(&[b'y'; 500], at.expect("a value was read")).unwrap();
    let fetch = Fetch::new(&place, several([&source]));
    let version = fetch.open();
    assert!((0..2000).all(|key| is_right(&version, key)));
    fetch.run();
}

#[test]
fn a_source_that_fails_is_an_error_in_time_and_tried_again() {
    let (source, place) = (Source::new(false), Place::new());
    let fetch = Fetch::new(&place, several([&source]));
    let version = fetch.open();
    // Shorter than a look-up waits.
    source.failures.store(3, Relaxed);
    assert!(is_right(&version, 5));
    source.failures.store(u32::MAX, Relaxed);
    let began = Instant::now();
    let error = version.get_owned(b"1234").unwrap_err().to_string();
    assert!(error.contains("503 slow down"), "{error}");
    let took = began.elapsed();
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(20)).contains(&took),
        "{took:?}"
    );
    assert!(is_right(&version, 5) && version.damaged().is_empty());
    source.failures.store(0, Relaxed);
    assert!(is_right(&version, 1234));
    fetch.run();
}

#[test]
fn a_full_disk_is_noticed_before_anything_is_served() {
    let Some(disk) = SmallDisk::temporary(16 << 20) else {
        return;
    };
    let (source, mut place) = (Source::new(false), Place::new());
    place.dir = tempfile::TempDir::new_in(disk.path()).unwrap();
    let sources = Arc::new(several([&source]));
    let (fetching, version) = (place.fetching(), place.version());
    let target = place.target(&fetching, &version);
    let mut plan = FetchPlan::new(&sources, &target).unwrap();
    disk.fill_up_to(64 << 10);
    let all: PartitionSet = plan.manifest().partitions.partitions().collect();
    let error = plan.on_demand(&sources, &target, &all, &Arc::default()).err().unwrap();
    assert!(matches!(error, FetchError::DiskFull { .. }), "{error}");
    disk.make_room();
    Fetch::new(&place, several([&source])).run();
}
