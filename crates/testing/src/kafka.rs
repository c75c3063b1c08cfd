//! A Kafka broker, which is its own controller.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use crate::jars::jars_of;
use crate::java::{START_MAX, java};
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::wait::wait_until;

const ARTIFACTS: [&str; 3] = [
    "org.apache.kafka:kafka_2.13:4.1.0",
    "org.apache.kafka:kafka-tools:4.1.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
];

/// A Kafka with its own data directory. Dropping it kills it.
pub struct Kafka {
    dir: TempDir,
    port: u16,
    broker: Option<ServerProcess>,
}

impl Kafka {
    /// Formats and starts an empty Kafka, and waits until it accepts connections.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start() -> Self {
        let mut server = Self {
            dir: tempfile::tempdir().expect("temporary directories can be made"),
            port: free_port(),
            broker: None,
        };
        server.configure();
        let random = server.tool("kafka.tools.StorageTool", &["random-uuid"]);
        let uuid = random.lines().last().unwrap_or_default().trim().to_owned();
        let file = server.file();
        let format = ["format", "--standalone", "-t", &uuid, "-c", &file];
        server.tool("kafka.tools.StorageTool", &format);
        server.restart();
        server
    }

    /// Kills it; its topics stay.
    pub fn kill(&mut self) {
        self.broker = None;
    }

    /// Starts it again, on the same port, with its topics.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn restart(&mut self) {
        self.kill();
        let log = self.dir.path().join("broker.log");
        let _ = fs::remove_file(&log);
        let mut command = self.command("kafka.Kafka", &[&self.file()]);
        let mut broker = ServerProcess::start("Kafka", &mut command, &log);
        wait_until("Kafka to listen", START_MAX, || {
            broker.check_alive();
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        self.broker = Some(broker);
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn file(&self) -> String {
        self.dir.path().join("server.properties").display().to_string()
    }

    fn configure(&self) {
        let (port, controller, dir) = (self.port, free_port(), self.dir.path().display());
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             log.dirs={dir}/data\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             auto.create.topics.enable=false\n"
        );
        fs::write(self.file(), properties).expect("the directory was just made");
    }

    fn command(&self, class: &str, arguments: &[&str]) -> Command {
        let mut command = java(self.dir.path(), &jars_of("kafka", &ARTIFACTS));
        command.arg(class).args(arguments);
        command
    }

    fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let output = self.command(class, arguments).output();
        let output = output.unwrap_or_else(|error| panic!("cannot run Java: {error}; install it"));
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{class} {arguments:?}: {said} {errors}");
        said.into_owned()
    }
}
