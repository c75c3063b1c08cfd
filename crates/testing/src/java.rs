//! Servers in Java, made small: what they need to run, and how they are begun.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a server may take to serve: a Java machine on a busy computer takes its time.
pub(crate) const START_MAX: Duration = Duration::from_secs(120);

const LOGBACK: &str = r#"<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"#;

/// A Java machine, to be told what to run: it finds classes in a directory with configuration and in one with
/// jars.
pub(crate) fn java(configuration: &Path, jars: &Path) -> Command {
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!("{}:{}/*", configuration.display(), jars.display()));
    command
}

/// Has a server whose configuration is in this directory log warnings alone: otherwise some log every byte.
///
/// # Panics
/// If the directory cannot be written to.
pub(crate) fn log_warnings(configuration: &Path) {
    let file = configuration.join("logback.xml");
    fs::write(&file, LOGBACK).unwrap_or_else(|error| panic!("cannot write {file:?}: {error}"));
}
