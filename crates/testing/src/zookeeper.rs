//! ZooKeeper, one server or an ensemble.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::jars::jars_of;
use crate::java::{START_MAX, java, log_warnings};
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::wait::wait_until;

const ARTIFACTS: [&str; 3] = [
    "org.apache.zookeeper:zookeeper:3.9.3",
    "org.xerial.snappy:snappy-java:1.1.10.5",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
];

/// A ZooKeeper server with its own data directory. Dropping it kills it. Its sessions last at least 0.5 s.
pub struct ZooKeeper {
    dir: TempDir,
    jars: PathBuf,
    port: u16,
    process: Option<ServerProcess>,
}

impl ZooKeeper {
    /// Starts a single server, and waits until it serves.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start() -> Self {
        let mut server = Self::prepare(free_port(), "");
        server.restart();
        server
    }

    /// Like [`start`](Self::start), with a port for TLS besides. `keys` is a private key with its certificate, and
    /// `trusted` are the certificates that clients are trusted by: both are files of PEM. Clients must show a
    /// certificate.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_secure(keys: &Path, trusted: &Path) -> (Self, u16) {
        let secure = free_port();
        let more = format!(
            "secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n\
             ssl.clientAuth=need\nsslQuorum=false\n",
            keys.display(),
            trusted.display()
        );
        let mut server = Self::prepare(free_port(), &more);
        server.restart();
        (server, secure)
    }

    fn prepare(port: u16, more: &str) -> Self {
        let jars = jars_of("zookeeper", &ARTIFACTS);
        let dir = tempfile::tempdir().expect("temporary directories can be made");
        let data = dir.path().join("data");
        let configuration = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=250\nmaxSessionTimeout=60000\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n{more}",
            data.display()
        );
        let prepared = fs::create_dir(&data).and_then(|()| fs::write(dir.path().join("zoo.cfg"), configuration));
        prepared.unwrap_or_else(|error| panic!("cannot prepare {:?}: {error}", dir.path()));
        log_warnings(dir.path());
        Self {
            dir,
            jars,
            port,
            process: None,
        }
    }

    /// Where clients connect: `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it, as a power failure does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again over the same data, and waits until it serves.
    ///
    /// # Panics
    /// If it does not serve in time.
    pub fn restart(&mut self) {
        self.launch();
        self.wait_until_serving();
    }

    fn launch(&mut self) {
        self.process = None;
        let mut command = java(self.dir.path(), &self.jars);
        command
            // In KiB: the transaction log is preallocated to this size, 64 MiB otherwise.
            .arg("-Dzookeeper.preAllocSize=1024")
            // Tests kill processes, not machines: written data stays. A sync may wait for all pending writes of the
            // machine, which takes long right after a build.
            .arg("-Dzookeeper.forceSync=no")
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.dir.path().join("zoo.cfg"));
        let log = self.dir.path().join("log");
        self.process = Some(ServerProcess::start("ZooKeeper", &mut command, &log));
    }

    fn wait_until_serving(&mut self) {
        wait_until("ZooKeeper to serve", START_MAX, || {
            self.running().check_alive();
            self.mode().is_some()
        });
    }

    fn running(&mut self) -> &mut ServerProcess {
        self.process.as_mut().expect("the test has killed it")
    }

    /// Pauses it, as a machine that hangs.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pause(&mut self) {
        self.running().pause();
    }

    /// Resumes it after [`pause`](Self::pause).
    ///
    /// # Panics
    /// If it was killed.
    pub fn resume(&mut self) {
        self.running().resume();
    }

    /// The reply to a four-letter command; `None` if it does not answer.
    pub fn command(&self, letters: &str) -> Option<String> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        connection.write_all(letters.as_bytes()).ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// `standalone`, `leader` or `follower`; `None` while it does not serve.
    pub fn mode(&self) -> Option<String> {
        let said = self.command("srvr")?;
        said.lines()
            .find_map(|line| line.strip_prefix("Mode: "))
            .map(str::to_owned)
    }

    /// The directory with its data and its log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Several ZooKeeper servers that serve as long as a majority of them runs.
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
}

impl Ensemble {
    /// Starts this many servers, and waits until all of them serve.
    ///
    /// # Panics
    /// If they cannot be started.
    pub fn start(servers: usize) -> Self {
        let ports: Vec<_> = (0..servers).map(|_| (free_port(), free_port())).collect();
        let line = |(at, (quorum, election)): (usize, &(u16, u16))| {
            format!("server.{}=127.0.0.1:{quorum}:{election}\n", at + 1)
        };
        let members: String = ports.iter().enumerate().map(line).collect();
        let member = |at: usize| {
            let server = ZooKeeper::prepare(free_port(), &format!("initLimit=80\nsyncLimit=20\n{members}"));
            let id = server.dir().join("data/myid");
            fs::write(&id, (at + 1).to_string()).unwrap_or_else(|error| panic!("cannot write {id:?}: {error}"));
            server
        };
        let mut ensemble = Self {
            servers: (0..servers).map(member).collect(),
        };
        ensemble.servers.iter_mut().for_each(ZooKeeper::launch);
        ensemble.servers.iter_mut().for_each(ZooKeeper::wait_until_serving);
        ensemble
    }

    /// Where clients connect: all servers, with commas between them.
    pub fn addresses(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(ZooKeeper::address).collect();
        addresses.join(",")
    }

    /// One of its servers.
    ///
    /// # Panics
    /// If it has no such server.
    pub fn server(&mut self, at: usize) -> &mut ZooKeeper {
        &mut self.servers[at]
    }

    /// The leading server; `None` while there is no leader.
    pub fn leader(&self) -> Option<usize> {
        let leads = |server: &ZooKeeper| server.mode().as_deref() == Some("leader");
        self.servers.iter().position(leads)
    }
}
