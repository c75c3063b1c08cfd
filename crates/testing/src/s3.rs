//! A server that speaks S3: S3Proxy, with its objects in a directory.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::jars::jars_of;
use crate::java::{START_MAX, java, log_warnings};
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::wait::wait_until;

const ARTIFACTS: [&str; 1] = ["org.gaul:s3proxy:2.6.0"];

/// An S3Proxy with one bucket. Dropping it kills it.
pub struct S3 {
    dir: TempDir,
    port: u16,
    process: Option<ServerProcess>,
}

impl S3 {
    /// The bucket.
    pub const BUCKET: &'static str = "versions";
    /// The access key id.
    pub const ACCESS_KEY_ID: &'static str = "tester";
    /// The secret key.
    pub const SECRET_ACCESS_KEY: &'static str = "nothing-secret";

    /// Starts an empty server, and waits until it serves.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start() -> Self {
        let mut server = Self {
            dir: tempfile::tempdir().expect("temporary directories can be made"),
            port: free_port(),
            process: None,
        };
        fs::create_dir_all(server.objects()).expect("the directory was just made");
        server.restart();
        server
    }

    /// Kills it; its objects stay.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, on the same port, with its objects, and waits until it serves.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn restart(&mut self) {
        self.kill();
        let dir = self.dir.path();
        let configuration = format!(
            "s3proxy.endpoint={}\ns3proxy.authorization=aws-v2-or-v4\ns3proxy.identity={}\ns3proxy.credential={}\n\
             s3proxy.ignore-unknown-headers=true\njclouds.provider=filesystem-nio2\n\
             jclouds.identity=none\njclouds.credential=none\njclouds.filesystem.basedir={}\n",
            self.endpoint(),
            Self::ACCESS_KEY_ID,
            Self::SECRET_ACCESS_KEY,
            dir.join("objects").display()
        );
        let file = dir.join("s3proxy.properties");
        fs::write(&file, configuration).expect("the directory was just made");
        log_warnings(dir);
        let mut command = java(dir, &jars_of("s3proxy", &ARTIFACTS));
        command.args(["org.gaul.s3proxy.Main", "--properties"]).arg(&file);
        let mut process = ServerProcess::start("S3Proxy", &mut command, &dir.join("log"));
        wait_until("S3Proxy to serve", START_MAX, || {
            process.check_alive();
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        self.process = Some(process);
    }

    /// Its URL.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with the objects of the bucket, one file each, to inspect or to damage.
    pub fn objects(&self) -> PathBuf {
        self.dir.path().join("objects").join(Self::BUCKET)
    }
}
