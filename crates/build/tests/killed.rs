//! A killed build leaves no output that looks complete, and no temporary file.

mod generate;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fondaco_build::{Progress, build};
use fondaco_format::{FormatError, Version};
use generate::Place;

const INPUT: &str = "FONDACO_BUILD_TEST_INPUT";
const OUTPUT: &str = "FONDACO_BUILD_TEST_OUTPUT";

/// Not a test: this is the process that is killed.
#[test]
fn child() {
    let (Ok(input), Ok(output)) = (std::env::var(INPUT), std::env::var(OUTPUT)) else {
        return;
    };
    let place = Place::new();
    let mut options = place.options();
    options.inputs = vec![input];
    options.output = fondaco_storage::Location::local(&output);
    options.temporary = Path::new(&output).parent().unwrap().join("temporary");
    options.memory_bytes = 1 << 20;
    options.partitions = 256.try_into().unwrap();
    build(&options, &Progress::new()).unwrap();
}

#[test]
fn a_killed_build_leaves_no_manifest_and_no_temporary_file() {
    for files_before_the_kill in [0, 1, 40, 300] {
        let place = Place::new();
        let rows: String = (0..60_000).map(|n| format!("key{n},{n:>100}\n")).collect();
        let input = place.write("a.csv", format!("k,v\n{rows}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--test-threads=1"])
            .env(INPUT, input)
            .env(OUTPUT, place.output())
            .env("TMPDIR", place.input(""))
            .stdout(Stdio::null())
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
