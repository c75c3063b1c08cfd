//! A killed build leaves no output that looks complete, and no temporary file.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::generate::Place;
use fondaco_format::{FormatError, Version};

#[test]
fn a_killed_build_leaves_no_manifest_and_no_temporary_file() {
    for files_before_the_kill in [0, 1, 40, 300] {
        let place = Place::new();
        let rows: String = (0..60_000).map(|n| format!("key{n},{n:>100}\n")).collect();
        let input = place.write("a.csv", format!("k,v\n{rows}"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_fondaco-builder-many"))
            .args([input, place.output()])
            .env("TMPDIR", place.input(""))
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let files = || fs::read_dir(place.output()).map_or(0, Iterator::count);
        while files() < files_before_the_kill {
            assert!(
                Instant::now() < deadline,
                "the build wrote {} files in a minute",
                files()
            );
            assert!(
                child.try_wait().unwrap().is_none(),
                "the build was done before it was killed"
            );
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed while building");
        assert_eq!(fs::read_dir(place.temporary()).unwrap().count(), 0);
        if place.output().exists() {
            assert!(matches!(
                Version::open(&place.output()),
                Err(FormatError::NoManifest { .. })
            ));
            fs::remove_dir_all(place.output()).unwrap();
        }
        place.built(|_| {});
    }
}
