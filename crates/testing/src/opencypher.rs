//! openCypher's Technology Compatibility Kit: scenarios with queries and their answers.

use std::process::Command;

use tempfile::TempDir;

use crate::jars::jars_of;

const ARTIFACT: &str = "org.opencypher:tck:1.0.0-M23";

/// A directory with the features and graphs of the TCK, fetched by Maven if missing.
///
/// # Panics
/// If Java or Maven is missing, or Maven fails.
pub fn opencypher_tck() -> TempDir {
    let jar = jars_of("opencypher-tck", &[ARTIFACT]).join("tck-1.0.0-M23.jar");
    let dir = tempfile::tempdir().expect("temporary directories can be made");
    let unpacked = Command::new("jar").arg("xf").arg(&jar).current_dir(dir.path()).status();
    let unpacked = unpacked.unwrap_or_else(|error| panic!("cannot run jar, which unpacks {jar:?}: {error}"));
    assert!(unpacked.success(), "cannot unpack {jar:?}");
    dir
}
