//! A MariaDB server for one test.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::copy::{copy_dir, put_back_dir};
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::wait::wait_until;

const START_MAX: Duration = Duration::from_secs(90);

/// A server on the loopback address, whose user `root` has no password. Dropping it kills it.
pub struct MariaDb {
    process: Option<ServerProcess>,
    dir: PathBuf,
    port: u16,
    options: Vec<String>,
    /// Deleted with the server.
    _temporary: Option<TempDir>,
}

impl MariaDb {
    /// Starts a server in a temporary directory, with these additional options.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(options: &[&str]) -> Self {
        let temporary = tempfile::tempdir().expect("temporary directories can be made");
        let server = Self::start_in(temporary.path(), options);
        Self {
            _temporary: Some(temporary),
            ..server
        }
    }

    /// Starts a server in an empty directory, which is not deleted.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_in(dir: &Path, options: &[&str]) -> Self {
        let mut install = Command::new(program("mariadb-install-db"));
        install.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]);
        install
            .args(as_root())
            .arg(format!("--datadir={}", dir.join("data").display()));
        let tmp = dir.join("tmp");
        std::fs::create_dir_all(&tmp).unwrap_or_else(|error| panic!("cannot make {tmp:?}: {error}"));
        install.env("TMPDIR", &tmp);
        let output = install.output();
        let output = output.unwrap_or_else(|error| panic!("cannot run {install:?}: {error}; install mariadb-server"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{install:?} failed: {said}");
        let mut server = Self {
            process: None,
            dir: dir.to_owned(),
            port: free_port(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            _temporary: None,
        };
        server.restart();
        server
    }

    /// Starts it again over the same data, and waits until it serves.
    ///
    /// # Panics
    /// If it does not serve in time.
    pub fn restart(&mut self) {
        self.process = None;
        let mut command = Command::new(program("mariadbd"));
        command.args([
            "--no-defaults",
            "--bind-address=127.0.0.1",
            "--skip-log-bin",
            "--skip-name-resolve",
        ]);
        command.args(as_root()).arg(format!("--port={}", self.port));
        command.arg(format!("--datadir={}", self.dir.join("data").display()));
        command.arg(format!("--socket={}", self.dir.join("socket").display()));
        // Each server has its own: a starting server deletes the temporary files of others.
        command.env("TMPDIR", self.dir.join("tmp"));
        command.args(&self.options);
        let log = self.dir.join("log");
        let mut process = ServerProcess::start("MariaDB", &mut command, &log);
        wait_until("MariaDB to serve", START_MAX, || {
            process.check_alive();
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        self.process = Some(process);
    }

    /// Kills it, as a power failure does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Copies its data, as of a replica that lags from then on. Connections break.
    ///
    /// # Panics
    /// If it does not serve again in time.
    pub fn copy_data(&mut self, copy: &Path) {
        self.kill();
        copy_dir(&self.dir.join("data"), copy);
        self.restart();
    }

    /// Serves a copy of its data from now on, as after a failover to a lagging replica.
    ///
    /// # Panics
    /// If it does not serve again in time.
    pub fn fail_over_to(&mut self, copy: &Path) {
        self.kill();
        put_back_dir(copy, &self.dir.join("data"));
        self.restart();
    }

    /// Its process id; `None` while it is killed.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(ServerProcess::id)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL for clients, for one of its databases: `mysql://root@127.0.0.1:port/database`.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }
}

/// Servers are often in a directory that is not in PATH.
fn program(name: &str) -> PathBuf {
    let outside = Path::new("/usr/sbin").join(name);
    if outside.exists() { outside } else { PathBuf::from(name) }
}

/// It does not start as root unless the user is given.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}
