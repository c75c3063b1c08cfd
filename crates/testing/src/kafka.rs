//! A Kafka broker, which is its own controller.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
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

/// Writes to a topic of a [`Kafka`].
pub struct KafkaWriter {
    admin: AdminClient<DefaultClientContext>,
    producer: BaseProducer,
    topic: String,
}

impl KafkaWriter {
    /// Sends a record, with headers, to a partition.
    ///
    /// # Panics
    /// If too many are on their way.
    pub fn send<'a>(
        &self,
        partition: i32,
        key: Option<&str>,
        value: Option<&str>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        let mut record = BaseRecord::<str, str>::to(&self.topic).partition(partition);
        record.key = key;
        record.payload = value;
        let mut all = OwnedHeaders::new();
        for (key, value) in headers {
            let value = Some(value);
            all = all.insert(Header { key, value });
        }
        record = record.headers(all);
        let sent = self.producer.send(record);
        assert!(
            sent.is_ok(),
            "a record cannot be sent: {:?}",
            sent.map_err(|(error, _)| error)
        );
    }

    /// Waits until all records that were sent are in the topic.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn flush(&self) {
        let flushed = self.producer.flush(Duration::from_secs(60));
        assert!(flushed.is_ok(), "records cannot be sent: {flushed:?}");
    }

    /// Deletes the records of a partition before an offset, as the topic's retention does.
    ///
    /// # Panics
    /// If that fails.
    pub fn delete_before(&self, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(&self.topic, partition, Offset::Offset(offset));
        let deleted = block_on(self.admin.delete_records(&list, &AdminOptions::new()));
        assert!(added.is_ok() && deleted.is_ok(), "{added:?} {deleted:?}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
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

    /// Makes a topic with so many partitions.
    ///
    /// # Panics
    /// If that fails.
    pub fn make_topic(&self, name: &str, partitions: i32) -> KafkaWriter {
        let writer = self.writer(name);
        let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let made = block_on(writer.admin.create_topics([&new], &AdminOptions::new()));
        assert!(
            made.as_ref().is_ok_and(|made| made.iter().all(Result::is_ok)),
            "{made:?}"
        );
        writer
    }

    /// A writer to a topic.
    ///
    /// # Panics
    /// If librdkafka does not start.
    pub fn writer(&self, name: &str) -> KafkaWriter {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        // Otherwise retries change the order within a partition.
        config.set("enable.idempotence", "true");
        KafkaWriter {
            admin: config.create().expect("librdkafka starts"),
            producer: config.create().expect("librdkafka starts"),
            topic: name.to_owned(),
        }
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
