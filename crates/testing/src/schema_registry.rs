//! A registry of schemas with Confluent's interface: Apicurio.

use std::process::Command;

use tempfile::TempDir;

use crate::jars::archive_of;
use crate::java::START_MAX;
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::wait::wait_until;

/// The last release for Java 17. It keeps its schemas in memory.
const ARTIFACT: &str = "io.apicurio:apicurio-registry-app:2.6.13.Final:tar.gz:all";
const PROGRAM: &str = "apicurio-registry-app-2.6.13.Final-runner.jar";

/// A registry. Dropping it kills it.
pub struct SchemaRegistry {
    port: u16,
    server: ServerProcess,
    _dir: TempDir,
}

impl SchemaRegistry {
    /// Starts it, without schemas.
    ///
    /// # Panics
    /// If it cannot be fetched or started.
    pub fn start() -> Self {
        let program = archive_of("schema-registry", ARTIFACT).join(PROGRAM);
        let (port, dir) = (free_port(), TempDir::new().expect("a directory can be made"));
        let mut command = Command::new("java");
        command.args(["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args([
            "-Dquarkus.http.host=127.0.0.1",
            &format!("-Dquarkus.http.port={port}"),
            "-jar",
        ]);
        command.arg(program).current_dir(dir.path());
        let mut server = ServerProcess::start("Apicurio", &mut command, &dir.path().join("log"));
        let url = format!("http://127.0.0.1:{port}/health/ready");
        wait_until("Apicurio to be ready", START_MAX, || {
            server.check_alive();
            let asked = Command::new("curl")
                .args(["-sf", "-m", "5", "-o", "/dev/null", &url])
                .status();
            asked.expect("curl can be run").success()
        });
        Self {
            port,
            server,
            _dir: dir,
        }
    }

    /// The address of Confluent's interface.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/apis/ccompat/v7", self.port)
    }

    /// Pauses it: it does not answer.
    pub fn pause(&self) {
        self.server.pause();
    }

    /// Resumes it.
    pub fn resume(&self) {
        self.server.resume();
    }
}
