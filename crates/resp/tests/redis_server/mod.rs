//! A real `redis-server` of version 7.0, to compare our replies and errors with.

use redis::{Parser, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START_SECONDS_MAX: u64 = 20;
const REPLY_SECONDS_MAX: u64 = 10;

/// The version that the table of commands describes.
const VERSION: &str = "redis_version:7.0.";

pub struct RedisServer {
    process: Child,
    folder: TempDir,
}

impl RedisServer {
    /// `None`, after printing a line with the reason, if there is no such server.
    pub fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let spawned = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket", "socket", "--dir"])
            .arg(folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let process = match spawned {
            Ok(process) => process,
            Err(error) => {
                eprintln!("skipped: no redis-server to compare with: {error}");
                return None;
            }
        };
        let server = Self { process, folder };
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        while server.try_connect().is_none() {
            assert!(Instant::now() < deadline, "redis-server does not start");
            std::thread::yield_now();
        }
        let info = server.connect().value(b"INFO server\r\n").unwrap();
        if !format!("{info:?}").contains(VERSION) {
            eprintln!("skipped: the redis-server here is not of version 7.0");
            return None;
        }
        Some(server)
    }

    pub fn connect(&self) -> Connection {
        self.try_connect().expect("a running server")
    }

    fn try_connect(&self) -> Option<Connection> {
        let stream = UnixStream::connect(self.folder.path().join("socket")).ok()?;
        let limit = Some(Duration::from_secs(REPLY_SECONDS_MAX));
        stream.set_read_timeout(limit).unwrap();
        stream.set_write_timeout(limit).unwrap();
        Some(Connection { stream })
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have ended by itself; then nothing is left to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    /// Sends one request, and reads one reply.
    pub fn value(&mut self, request: &[u8]) -> Result<Value, String> {
        self.stream.write_all(request).unwrap();
        let parsed = Parser::new().parse_value(&mut self.stream);
        parsed.map_err(|error| error.to_string())
    }

    /// Sends bytes, and reads one line without its line end.
    pub fn line(&mut self, request: &[u8]) -> String {
        self.stream.write_all(request).unwrap();
        let mut line = String::new();
        BufReader::new(&self.stream).read_line(&mut line).unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }
}
