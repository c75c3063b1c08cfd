//! A Kafka broker, which is its own controller.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
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

/// The identity of each cluster, which consists of one broker that no other knows: 16 bytes in base 64.
const CLUSTER_ID: &str = "fondacoCluster0000000A";

/// A Kafka with its own data directory. Dropping it kills it.
pub struct Kafka {
    dir: TempDir,
    port: u16,
    /// The port of its other listener, which asks for TLS and a password.
    secured: Option<u16>,
    broker: Option<ServerProcess>,
}

/// The user of a secured listener.
const USER: &str = "reader";
/// The user's password.
const PASSWORD: &str = "kafka's secret";

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
        self.send_at(None, partition, key, value, headers);
    }

    /// Sends a record as [`send`](Self::send) does, with a time of its own, in milliseconds since 1970.
    ///
    /// # Panics
    /// If too many are on their way.
    pub fn send_at<'a>(
        &self,
        time_ms: Option<i64>,
        partition: i32,
        key: Option<&str>,
        value: Option<&str>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        let mut record = BaseRecord::<str, str>::to(&self.topic).partition(partition);
        record.timestamp = time_ms;
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
        // The broker may be starting again.
        let flushed = self.producer.flush(2 * START_MAX);
        assert!(flushed.is_ok(), "records cannot be sent: {flushed:?}");
    }

    /// Raises the number of partitions of the topic to this.
    ///
    /// # Panics
    /// If that fails.
    pub fn grow(&self, partitions: usize) {
        let new = NewPartitions::new(&self.topic, partitions);
        let grown = block_on(self.admin.create_partitions([&new], &AdminOptions::new()));
        assert!(
            grown.as_ref().is_ok_and(|grown| grown.iter().all(Result::is_ok)),
            "{grown:?}"
        );
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
        Self::start_with(None)
    }

    /// Like [`start`](Self::start), with one more listener, which speaks TLS and has a user log in with SCRAM-SHA-256, who may
    /// only do what was [allowed](Self::allow).
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_secured() -> Self {
        Self::start_with(Some(free_port()))
    }

    /// The Kafka that all tests of this process share, with both listeners. It starts when a test needs it first. A test makes
    /// topics with names of its own, and neither stops nor counts on anything else that the server has.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Kafka> = OnceLock::new();
        SHARED.get_or_init(Self::start_secured)
    }

    fn start_with(secured: Option<u16>) -> Self {
        let mut server = Self {
            dir: tempfile::tempdir().expect("temporary directories can be made"),
            port: free_port(),
            secured,
            broker: None,
        };
        server.configure();
        let file = server.file();
        let user = format!("SCRAM-SHA-256=[name={USER},password={PASSWORD}]");
        let mut format = vec!["format", "--standalone", "-t", CLUSTER_ID, "-c", &file];
        if secured.is_some() {
            format.extend(["--add-scram", &user]);
        }
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
            let mut ports = [self.port].into_iter().chain(self.secured);
            ports.all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
        });
        self.broker = Some(broker);
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address of its secured listener.
    ///
    /// # Panics
    /// If it has none.
    pub fn secured_address(&self) -> String {
        format!("127.0.0.1:{}", self.secured.expect("it was started with that listener"))
    }

    /// The properties of librdkafka with which a client is let in at the secured listener.
    pub fn secured_properties(&self) -> BTreeMap<String, String> {
        let authority = self.authority().display().to_string();
        let properties = [
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", &authority),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("sasl.username", USER),
            ("sasl.password", PASSWORD),
        ];
        properties
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    /// The certificate of the secured listener, which is its own authority.
    fn authority(&self) -> PathBuf {
        self.dir.path().join("certificate.pem")
    }

    /// Whether it has a topic, as far as the broker knows.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn has_topic(&self, name: &str) -> bool {
        let writer = self.writer(name);
        // Of all topics: a question about one may make it.
        let found = writer.admin.inner().fetch_metadata(None, START_MAX);
        let found = found.expect("the broker answers");
        found.topics().iter().any(|topic| topic.name() == name)
    }

    /// The consumer groups that it knows.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn groups(&self) -> Vec<String> {
        let writer = self.writer("any");
        let groups = writer.admin.inner().fetch_group_list(None, START_MAX);
        let groups = groups.expect("the broker answers");
        groups.groups().iter().map(|group| group.name().to_owned()).collect()
    }

    /// Allows the user of the secured listener an operation on a topic: `read`, or `write`.
    ///
    /// # Panics
    /// If that fails.
    pub fn allow(&self, operation: &str, topic: &str) {
        let (address, principal) = (self.address(), format!("User:{USER}"));
        let mut arguments = vec!["--bootstrap-server", &address, "--add", "--allow-principal", &principal];
        arguments.extend(["--operation", operation, "--topic", topic]);
        self.tool("org.apache.kafka.tools.AclCommand", &arguments);
    }

    /// Sends lines `KEY:VALUE` to a topic with Kafka's own producer, in batches that it compresses with a codec.
    ///
    /// # Panics
    /// If that fails.
    pub fn produce(&self, topic: &str, codec: &str, lines: &str) {
        let (address, flag) = (self.address(), format!("--compression-codec={codec}"));
        let arguments = ["--bootstrap-server", &address, "--topic", topic, &flag];
        let mut command = self.command("org.apache.kafka.tools.ConsoleProducer", &arguments);
        command.args(["--property", "parse.key=true", "--property", "key.separator=:"]);
        let mut producer = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Java can be run");
        let mut input = producer.stdin.take().expect("it is a pipe");
        input.write_all(lines.as_bytes()).expect("the producer reads its input");
        drop(input);
        let output = producer.wait_with_output().expect("it is a child");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }

    /// Makes a topic with this number of partitions.
    ///
    /// # Panics
    /// If that fails.
    pub fn make_topic(&self, name: &str, partitions: i32) -> KafkaWriter {
        self.make_topic_with(name, partitions, &[])
    }

    /// Makes a topic with this number of partitions, and with properties.
    ///
    /// # Panics
    /// If that fails.
    pub fn make_topic_with(&self, name: &str, partitions: i32, properties: &[(&str, &str)]) -> KafkaWriter {
        let writer = self.writer(name);
        let mut new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (name, value) in properties {
            new = new.set(name, value);
        }
        let made = block_on(writer.admin.create_topics([&new], &AdminOptions::new()));
        assert!(
            made.as_ref().is_ok_and(|made| made.iter().all(Result::is_ok)),
            "{made:?}"
        );
        writer
    }

    /// Deletes a topic, and makes another one with its name and this number of partitions.
    ///
    /// # Panics
    /// If that fails.
    pub fn make_topic_again(&self, name: &str, partitions: i32) -> KafkaWriter {
        let writer = self.writer(name);
        let deleted = block_on(writer.admin.delete_topics(&[name], &AdminOptions::new()));
        assert!(
            deleted.as_ref().is_ok_and(|deleted| deleted.iter().all(Result::is_ok)),
            "{deleted:?}"
        );
        // Until the broker has deleted the topic, it takes records for it, and then drops them.
        wait_until("the topic to be gone", START_MAX, || !self.has_topic(name));
        self.make_topic(name, partitions)
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
        let (mut listener, mut secured) = (String::new(), String::new());
        if let Some(port) = self.secured {
            listener = format!(",SASL_SSL://127.0.0.1:{port}");
            secured = self.configure_secured();
        }
        let properties = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port}{listener},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}{listener}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL\n\
             log.dirs={dir}/data\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             auto.create.topics.enable=false\n\
             {secured}"
        );
        fs::write(self.file(), properties).expect("the directory was just made");
    }

    /// Makes the certificate of the secured listener. Returns the properties of that listener.
    fn configure_secured(&self) -> String {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("the address is valid");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let keystore = self.dir.path().join("keystore.pem");
        fs::write(self.authority(), &certificate).expect("the directory was just made");
        fs::write(&keystore, key + &certificate).expect("the directory was just made");
        format!(
            "ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             sasl.enabled.mechanisms=SCRAM-SHA-256\n\
             listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
             super.users=User:ANONYMOUS\n",
            keystore.display()
        )
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
