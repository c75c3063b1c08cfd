//! Neo4j, embedded in a small Java program.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use tempfile::TempDir;

use crate::jars::jars_of;
use crate::java::java;

const ARTIFACT: &str = "org.neo4j:neo4j:5.26.0";

/// An empty Neo4j that answers queries. It is killed when it is dropped.
pub struct Neo4j {
    dir: TempDir,
    process: Child,
    queries: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Neo4j {
    /// Starts it, fetched by Maven if missing, which takes some ten seconds.
    ///
    /// # Panics
    /// If Java or Maven is missing, or Maven fails.
    pub fn start() -> Self {
        let jars = jars_of("neo4j", &[ARTIFACT]);
        let dir = tempfile::tempdir().expect("temporary directories can be made");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/Neo4jPeer.java");
        let mut command = java(dir.path(), &jars);
        command.arg(program).arg(dir.path().join("data"));
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.unwrap_or_else(|error| panic!("cannot run Java: {error}; install it"));
        let (queries, answers) = (process.stdin.take(), process.stdout.take());
        let mut started = Self {
            dir,
            process,
            queries: queries.expect("it is a pipe"),
            answers: BufReader::new(answers.expect("it is a pipe")),
        };
        started
            .ask("RETURN 1")
            .unwrap_or_else(|error| panic!("Neo4j does not answer: {error}"));
        started
    }

    /// The answer to a query: its rows as JSON, as `java/Neo4jPeer.java` writes them, or the message of an error.
    ///
    /// # Panics
    /// If Neo4j has ended.
    pub fn ask(&mut self, query: &str) -> Result<String, String> {
        let query = query.replace('\n', " ");
        writeln!(self.queries, "{query}").unwrap_or_else(|error| panic!("Neo4j takes no query: {error}"));
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        assert!(read.is_ok_and(|bytes| bytes > 0), "Neo4j has ended, in {:?}", self.dir);
        match answer.trim_end().strip_prefix("error ") {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

impl Drop for Neo4j {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
