//! A small HDFS: one name node and one data node.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::jars::jars_of;
use crate::java::{START_MAX, java};
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::wait::wait_until;

const ARTIFACTS: [&str; 3] = [
    "org.apache.hadoop:hadoop-hdfs:3.4.1",
    "org.apache.hadoop:hadoop-common:3.4.1",
    "org.apache.hadoop:hadoop-hdfs-client:3.4.1",
];

const NAME_NODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATA_NODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";

/// An HDFS with its own data directory. Dropping it kills it.
pub struct Hdfs {
    dir: TempDir,
    port: u16,
    name_node: Option<ServerProcess>,
    data_node: Option<ServerProcess>,
}

impl Hdfs {
    /// Formats and starts an empty HDFS, and waits until it accepts files.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start() -> Self {
        let mut server = Self {
            dir: tempfile::tempdir().expect("temporary directories can be made"),
            port: free_port(),
            name_node: None,
            data_node: None,
        };
        server.configure();
        let format = server.command(NAME_NODE).args(["-format", "-nonInteractive"]).output();
        let format = format.unwrap_or_else(|error| panic!("cannot run Java: {error}; install it"));
        let said = String::from_utf8_lossy(&format.stdout);
        assert!(format.status.success(), "the name node cannot be formatted: {said}");
        server.restart();
        server
    }

    /// Kills both its processes; its files stay.
    pub fn kill(&mut self) {
        self.data_node = None;
        self.name_node = None;
    }

    /// Starts it again, on the same port, with its files, and waits until it accepts files.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn restart(&mut self) {
        self.kill();
        let log = self.dir.path().join("name-node.log");
        // The log of an earlier run would be mistaken for the log of this one.
        let _ = fs::remove_file(&log);
        let mut name_node = ServerProcess::start("the name node", &mut self.command(NAME_NODE), &log);
        wait_until("the name node to listen", START_MAX, || {
            name_node.check_alive();
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        let data_log = self.dir.path().join("data-node.log");
        let mut data_node = ServerProcess::start("the data node", &mut self.command(DATA_NODE), &data_log);
        wait_until("the data node to report its blocks", START_MAX, || {
            name_node.check_alive();
            data_node.check_alive();
            fs::read_to_string(&log).is_ok_and(|said| said.contains("Processing first storage report"))
        });
        wait_until("the name node to leave its safe mode", START_MAX, || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            !said.contains("Safe mode ON") || said.contains("Safe mode is OFF")
        });
        (self.name_node, self.data_node) = (Some(name_node), Some(data_node));
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        format!("hdfs://127.0.0.1:{}", self.port)
    }

    /// The files in which the data node keeps blocks, to damage.
    pub fn blocks(&self) -> Vec<PathBuf> {
        let mut blocks = Vec::new();
        collect(&self.dir.path().join("data"), &mut blocks);
        blocks
    }

    fn configuration(&self) -> PathBuf {
        self.dir.path().join("configuration")
    }

    fn command(&self, main_class: &str) -> Command {
        let mut command = java(&self.configuration(), &jars_of("hdfs", &ARTIFACTS));
        command.arg(main_class);
        command
    }

    fn configure(&self) {
        // Neither daemon starts without its web pages.
        for daemon in ["hdfs", "datanode"] {
            let pages = self.configuration().join("webapps").join(daemon).join("WEB-INF");
            fs::create_dir_all(&pages).expect("the directory was just made");
            fs::write(pages.join("web.xml"), "<web-app/>").expect("the directory was just made");
        }
        let dir = self.dir.path().display();
        self.write("core-site.xml", &[("fs.defaultFS", self.url())]);
        self.write(
            "hdfs-site.xml",
            &[
                ("dfs.replication", "1".into()),
                ("dfs.permissions.enabled", "false".into()),
                ("dfs.namenode.name.dir", format!("file://{dir}/name")),
                ("dfs.datanode.data.dir", format!("file://{dir}/data")),
                ("dfs.namenode.http-address", "127.0.0.1:0".into()),
                ("dfs.datanode.address", "127.0.0.1:0".into()),
                ("dfs.datanode.http.address", "127.0.0.1:0".into()),
                ("dfs.datanode.ipc.address", "127.0.0.1:0".into()),
                ("dfs.datanode.hostname", "127.0.0.1".into()),
                ("dfs.safemode.extension", "0".into()),
                ("dfs.safemode.min.datanodes", "1".into()),
            ],
        );
        let logging = "log4j.rootLogger=INFO,out\n\
                       log4j.appender.out=org.apache.log4j.ConsoleAppender\n\
                       log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n";
        fs::write(self.configuration().join("log4j.properties"), logging).expect("the directory was just made");
    }

    fn write(&self, name: &str, properties: &[(&str, String)]) {
        let properties: String = properties
            .iter()
            .map(|(name, value)| format!("<property><name>{name}</name><value>{value}</value></property>\n"))
            .collect();
        let text = format!("<configuration>\n{properties}</configuration>\n");
        fs::write(self.configuration().join(name), text).expect("the directory was just made");
    }
}

fn collect(dir: &Path, blocks: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            collect(&path, blocks);
        } else if name.starts_with("blk_") && !name.ends_with(".meta") {
            blocks.push(path);
        }
    }
}
