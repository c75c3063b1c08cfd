//! Java servers with small settings: their requirements, and how to start them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a server may take to start: a JVM on a busy machine is slow.
pub(crate) const START_MAX: Duration = Duration::from_secs(120);

const LOGBACK: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"#;

/// A JVM command without the class to run: its class path is a directory with configuration and one with jars.
pub(crate) fn java(configuration: &Path, jars: &Path) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!("{}:{}/*", configuration.display(), jars.display()));
    command
}

/// Makes a server with its configuration in this directory log only warnings: otherwise some log every byte.
///
/// # Panics
/// If the directory cannot be written to.
pub(crate) fn log_warnings(configuration: &Path) {
    let file = configuration.join("logback.xml");
    fs::write(&file, LOGBACK).unwrap_or_else(|error| panic!("cannot write {file:?}: {error}"));
}
