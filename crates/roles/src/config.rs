//! The configuration that a process is started with: plain data, checked before anything is opened.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fondaco_agent::{KafkaConfig, VersionedConfig};
use fondaco_api::Role;
use fondaco_catalog::{Password, PasswordDigest, User};
use fondaco_cluster::ClusterConfig;
use fondaco_controller::MachinesConfig;
use fondaco_model::{NodeId, PartitionCount, StoreName};
use fondaco_stream::KafkaCluster;

use crate::error::RoleError;

/// The configuration of a process.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its role.
    pub role: Role,
    /// The data directory, for roles that hold data.
    pub data_dir: PathBuf,
    /// The RESP address to listen on; with port 0 the system chooses a port.
    pub resp_listen: SocketAddr,
    /// The HTTP address to listen on; with port 0 the system chooses a port.
    pub http_listen: SocketAddr,
    /// How many event loops serve RESP; 0 means one for each core.
    pub loops: usize,
    /// How many partitions the cluster has. Set when the cluster is made, never changed.
    pub partitions: PartitionCount,
    /// The other settings of a new cluster, used by the first controller that finds none.
    pub cluster: ClusterConfig,
    /// The coordination service; `None` for a cluster of one, which coordinates itself in its data directory.
    pub zookeeper: Option<ZooKeeperConfig>,
    /// The addresses, zone and number that the cluster records for this process.
    pub member: MemberConfig,
    /// How it speaks to other processes of its cluster.
    pub peers: PeerConfig,
    /// The users over RESP, and their rights; if empty, every client may do everything.
    pub users: Vec<UserConfig>,
    /// The token of the control port; no token if `None`.
    pub token: Option<String>,
    /// Certificate and key for TLS on both ports; no TLS if `None`.
    pub tls: Option<TlsConfig>,
    /// Serve beyond loopback even without users or token, and HTTP without a token although there are users.
    pub allow_insecure: bool,
    /// The store for keys whose prefix names no store. Without it, such keys are refused.
    pub default_store: Option<StoreName>,
    /// How much of the disk pushes, and writes to versioned stores, leave free, in bytes.
    pub disk_reserve_bytes: u64,
    /// How much memory the process may use, in bytes; that of the machine or its control group if `None`.
    pub memory_bytes: Option<u64>,
    /// How long dropped stores and discarded versions are kept, so that they can be restored. They are deleted earlier
    /// if the disk needs the space.
    pub keep_deleted: Duration,
    /// The file from which the boot ID of the machine is read. Tests have another file.
    pub boot_id_file: PathBuf,
    /// How versioned stores are kept.
    pub versioned: VersionedConfig,
    /// How Kafka is reached.
    pub kafka: KafkaConfig,
    /// The program that compacts hybrid stores, with the command `store compact`: without it no node does.
    pub program: Option<PathBuf>,
    /// How a leading controller gets machines on demand; it gets none if `None`.
    pub machines: Option<MachinesConfig>,
}

/// How ZooKeeper is reached.
#[derive(Debug, Clone)]
pub struct ZooKeeperConfig {
    /// Its servers: `host:port`, separated by commas.
    pub connect: String,
    /// The path below which the cluster keeps its entries, such as `/fondaco/production`.
    pub root: String,
    /// How long a process may give no sign of life before it counts as gone.
    pub session_timeout: Duration,
    /// User and password, where ZooKeeper asks for them: `user:password`.
    pub auth: Option<String>,
    /// The certificates to trust its servers by, PEM. With them it is reached by TLS.
    pub ca: Option<PathBuf>,
    /// The certificate that this process shows ZooKeeper, and its key.
    pub identity: Option<TlsConfig>,
}

/// The entry of a process in the cluster.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// The number that the node is to have; by default the leading controller assigns one.
    pub id: Option<NodeId>,
    /// Its zone: replicas are spread over zones, and those in the same zone are asked first.
    pub zone: String,
    /// Its group, under the placement *grouped*.
    pub group: Option<String>,
    /// The template of its settings: a value for the template counts before that of the whole cluster.
    pub template: Option<String>,
    /// Its capacity relative to other nodes, 1 or more.
    pub weight: u32,
    /// The machine that it runs on: replicas of a partition are on different machines. By default the host at which
    /// others reach it, unless that is a loopback address.
    pub host: Option<String>,
    /// Whether it waits to replace a node that dies.
    pub backup: bool,
    /// The `host:port` at which others reach its RESP port; the listening address by default.
    pub resp_advertised: Option<String>,
    /// The `host:port` at which others reach its HTTP port; the listening address by default.
    pub http_advertised: Option<String>,
}

/// How this process speaks to other processes of its cluster. Over HTTP it proves its own token.
#[derive(Debug, Clone, Default)]
pub struct PeerConfig {
    /// The RESP user with which it logs in to nodes, which may read and write all stores; the default user unless set.
    pub user: Option<String>,
    /// The user's password, if nodes ask for one.
    pub password: Option<String>,
    /// The certificates to trust nodes by, PEM; by default its own certificate, if it has one.
    pub certificates: Option<PathBuf>,
}

/// A user of RESP.
#[derive(Debug, Clone)]
pub struct UserConfig {
    /// The name; `AUTH password` logs in as `default`.
    pub name: String,
    /// The SHA-256 of the password, as 64 hexadecimal digits.
    pub password_sha256: String,
    /// Patterns of the names of the stores that the user may read; `*` is all.
    pub stores: Vec<String>,
    /// Patterns of the names of the stores that the user may write, and read.
    pub writes: Vec<String>,
    /// Whether the user may list and disconnect other clients, and change settings.
    pub admin: bool,
}

/// Files for TLS.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

impl Config {
    /// How much of the disk a push leaves free, in bytes, unless configured.
    pub const DISK_RESERVE_BYTES_DEFAULT: u64 = 256 << 20;

    /// How long data that was given up is kept, unless configured.
    pub const KEEP_DELETED_DEFAULT: Duration = Duration::from_secs(24 * 3600);

    /// The file in which Linux gives the boot ID of the machine.
    const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

    /// The shortest token, in bytes: shorter ones can be guessed.
    pub const TOKEN_BYTES_MIN: usize = 16;

    /// A cluster of one that serves the loopback interface on its usual ports, without users, token or TLS.
    pub fn local(data_dir: impl Into<PathBuf>, partitions: PartitionCount) -> Self {
        Self {
            role: Role::Single,
            data_dir: data_dir.into(),
            resp_listen: ([127, 0, 0, 1], 6500).into(),
            http_listen: ([127, 0, 0, 1], 6580).into(),
            loops: 0,
            partitions,
            cluster: ClusterConfig::default(),
            zookeeper: None,
            member: MemberConfig::default(),
            peers: PeerConfig::default(),
            users: Vec::new(),
            token: None,
            tls: None,
            allow_insecure: false,
            default_store: None,
            disk_reserve_bytes: Self::DISK_RESERVE_BYTES_DEFAULT,
            memory_bytes: None,
            keep_deleted: Self::KEEP_DELETED_DEFAULT,
            boot_id_file: Self::BOOT_ID_FILE.into(),
            versioned: VersionedConfig::default(),
            kafka: KafkaConfig::default(),
            program: None,
            machines: None,
        }
    }

    /// Checks values that are not possible, or not safe.
    ///
    /// # Errors
    /// The first that is not.
    pub(crate) fn check(&self) -> Result<(), RoleError> {
        if let Some(token) = &self.token
            && token.len() < Self::TOKEN_BYTES_MIN
        {
            let min = Self::TOKEN_BYTES_MIN;
            let reason = format!(
                "the token has {} bytes: use at least {min}, chosen at random",
                token.len()
            );
            return Err(RoleError::InvalidConfig(reason));
        }
        self.check_cluster()?;
        KafkaCluster::check(&self.kafka.0).map_err(RoleError::InvalidConfig)?;
        if self.allow_insecure {
            return Ok(());
        }
        let insecure = |port, addr: SocketAddr, missing| match addr.ip().is_loopback() {
            true => Ok(()),
            false => Err(RoleError::Insecure { port, addr, missing }),
        };
        if self.users.is_empty() && self.role.serves_resp() {
            insecure("RESP", self.resp_listen, "users")?;
        }
        if self.token.is_none() {
            insecure("HTTP", self.http_listen, "a token")?;
            // Users restrict who may read what; HTTP without a token lets every local user read everything.
            if !self.users.is_empty() {
                return Err(RoleError::UsersWithoutToken { addr: self.http_listen });
            }
        }
        Ok(())
    }

    fn check_cluster(&self) -> Result<(), RoleError> {
        let invalid = |reason: String| Err(RoleError::InvalidConfig(reason));
        let least_one = [
            ("replicas", self.cluster.replicas),
            ("nodes_initial", self.cluster.nodes_initial),
            ("weight", self.member.weight),
        ];
        for (name, value) in least_one {
            if value == 0 {
                return invalid(format!("{name} is 0: use 1 or more"));
            }
        }
        if self.role == Role::Single && self.cluster.nodes_initial > 1 {
            return invalid("a cluster of one does not wait for more nodes: set nodes_initial to 1".to_owned());
        }
        for (name, address) in [
            ("resp_advertised", &self.member.resp_advertised),
            ("http_advertised", &self.member.http_advertised),
        ] {
            let port = |address: &String| Some(address.rsplit_once(':')?.1.parse::<u16>().ok()? > 0);
            if address.as_ref().is_some_and(|address| port(address) != Some(true)) {
                return invalid(format!("{name} is {address:?}: use host:port"));
            }
        }
        Ok(())
    }

    pub(crate) fn users(&self) -> Result<Vec<User>, RoleError> {
        let user = |user: &UserConfig| {
            let password: PasswordDigest = user
                .password_sha256
                .parse()
                .map_err(|reason| RoleError::InvalidConfig(format!("user {:?}: {reason}", user.name)))?;
            Ok(User {
                name: user.name.clone(),
                password: Password::Digest(password),
                stores: user.stores.clone(),
                writes: user.writes.clone(),
                admin: user.admin,
            })
        };
        self.users.iter().map(user).collect()
    }
}

impl ZooKeeperConfig {
    /// How long a session outlives its process, unless configured.
    pub const SESSION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
}

impl Default for MemberConfig {
    fn default() -> Self {
        Self {
            id: None,
            zone: "default".to_owned(),
            group: None,
            template: None,
            weight: 1,
            host: None,
            backup: false,
            resp_advertised: None,
            http_advertised: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::local("data", PartitionCount::try_from(1).unwrap())
    }

    fn reader() -> UserConfig {
        UserConfig {
            name: "reader".into(),
            password_sha256: "0".repeat(64),
            stores: vec!["*".into()],
            writes: Vec::new(),
            admin: false,
        }
    }

    #[test]
    fn users_need_a_token_or_an_explicit_setting() {
        for role in [Role::Single, Role::Node, Role::Router, Role::Controller] {
            let mut config = config();
            config.role = role;
            config.users.push(reader());
            let error = config.check().unwrap_err().to_string();
            for remedy in ["token = ", "--token", "allow-insecure = true", "--allow-insecure"] {
                assert!(error.contains(remedy), "{remedy} in {error}");
            }
            config.token = Some("0123456789abcdef".into());
            assert!(config.check().is_ok());
            config.token = None;
            config.allow_insecure = true;
            assert!(config.check().is_ok());
        }
    }

    #[test]
    fn a_network_port_needs_protection_or_an_explicit_setting() {
        let mut resp = config();
        resp.resp_listen = ([0, 0, 0, 0], 6500).into();
        let error = resp.check().unwrap_err().to_string();
        assert!(
            error.contains("without users") && error.contains("--allow-insecure"),
            "{error}"
        );
        resp.users.push(reader());
        resp.token = Some("0123456789abcdef".into());
        assert!(resp.check().is_ok());

        let mut http = config();
        http.http_listen = "[::]:6580".parse().unwrap();
        let error = http.check().unwrap_err().to_string();
        assert!(error.contains("without a token"), "{error}");
        http.allow_insecure = true;
        assert!(http.check().is_ok());
        http.token = Some("short".into());
        assert!(http.check().is_err());
    }
}
