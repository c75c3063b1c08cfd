//! Maven artifacts, fetched once into the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory with these artifacts (`group:artifact:version`) and their dependencies, fetched by Maven if missing.
///
/// # Panics
/// If Java or Maven is missing, or Maven fails.
pub(crate) fn jars_of(name: &str, artifacts: &[&str]) -> PathBuf {
    fetched(name, &artifacts.join("\n"), |dir, jars| {
        let pom = dir.join("pom.xml");
        fs::write(&pom, project(artifacts)).expect("the directory was just made");
        let mut maven = Command::new("mvn");
        maven
            .args(["-q", "-B", "-f"])
            .arg(&pom)
            .arg("dependency:copy-dependencies");
        maven.arg(format!("-DoutputDirectory={}", jars.display()));
        maven
    })
}

/// The directory with the content of an archive (`group:artifact:version:type:classifier`), fetched by Maven if missing.
///
/// # Panics
/// As [`jars_of`].
pub(crate) fn archive_of(name: &str, artifact: &str) -> PathBuf {
    fetched(name, artifact, |_, content| {
        let mut maven = Command::new("mvn");
        maven.args([
            "-q",
            "-B",
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack",
        ]);
        maven.arg(format!("-Dartifact={artifact}"));
        maven.arg(format!("-DoutputDirectory={}", content.display()));
        maven
    })
}

/// A directory that a command fills, unless it has done so for the same `wanted`.
fn fetched(name: &str, wanted: &str, command: impl FnOnce(&Path, &Path) -> Command) -> PathBuf {
    let dir = target_dir().join("test-servers").join(name);
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("cannot make {dir:?}: {error}"));
    // Other tests may fetch the same at the same time.
    let lock = File::create(dir.join("lock")).expect("the directory was just made");
    lock.lock()
        .unwrap_or_else(|error| panic!("cannot lock {dir:?}: {error}"));
    let (done, content) = (dir.join("fetched"), dir.join("jars"));
    if fs::read_to_string(&done).is_ok_and(|fetched| fetched == wanted) {
        return content;
    }
    let _ = fs::remove_dir_all(&content);
    let output = command(&dir, &content).output().unwrap_or_else(|error| {
        panic!("cannot run Maven, which fetches {name} for this test: {error}; install Java and Maven")
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "Maven cannot fetch {name}: {said}");
    fs::write(&done, wanted).expect("the directory was just made");
    content
}

fn target_dir() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(own, PathBuf::from)
}

fn project(artifacts: &[&str]) -> String {
    let dependency = |artifact: &&str| {
        let parts: Vec<_> = artifact.split(':').collect();
        let [group, name, version] = parts[..] else {
            panic!("{artifact:?} is not group:artifact:version");
        };
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        )
    };
    let dependencies: String = artifacts.iter().map(dependency).collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>fondaco</groupId><artifactId>test-servers</artifactId><version>1</version>\
         <dependencies>{dependencies}</dependencies></project>\n"
    )
}
